// Bitonic sort of each block's part, in shared memory sized at the launch.
extern "C" __global__ void bitonic(unsigned *values, unsigned count)
{
    extern __shared__ unsigned part[];
    unsigned t = threadIdx.x;
    unsigned *mine = values + blockIdx.x * count;
    for (unsigned i = t; i < count; i += blockDim.x)
        part[i] = mine[i];
    __syncthreads();
    for (unsigned size = 2; size <= count; size *= 2) {
        for (unsigned gap = size / 2; gap > 0; gap /= 2) {
            unsigned low = 2 * t - (t & (gap - 1)), high = low + gap;
            bool ascending = (low & size) == 0;
            if ((part[low] > part[high]) == ascending) {
                unsigned kept = part[low];
                part[low] = part[high];
                part[high] = kept;
            }
            __syncthreads();
        }
    }
    for (unsigned i = t; i < count; i += blockDim.x)
        mine[i] = part[i];
}
