// Every kind of shuffle: a sum down the warp, a maximum by butterfly, an inclusive scan up the warp,
// and a rotation in groups of eight lanes.
extern "C" __global__ void warp_shuffle(const float *x, const int *y, float *sums, int *largest,
                                        int *scan, int *rotated)
{
    const unsigned all = 0xffffffffu;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned lane = threadIdx.x & 31;
    float sum = x[i];
    int high = y[i], running = y[i];
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(all, sum, step);
        high = max(high, __shfl_xor_sync(all, high, step));
    }
    for (int step = 1; step < 32; step *= 2) {
        int below = __shfl_up_sync(all, running, step);
        if (lane >= step)
            running += below;
    }
    if (lane == 0)
        sums[i / 32] = sum;
    largest[i] = high;
    scan[i] = running;
    rotated[i] = __shfl_sync(all, y[i], lane + 3, 8);
}
