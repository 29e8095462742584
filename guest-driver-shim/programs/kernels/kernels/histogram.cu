// Histogram of bytes: atomics on 256 counters in shared memory, then one global atomic per counter.
extern "C" __global__ void histogram(const unsigned *words, unsigned *bins, unsigned n)
{
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    unsigned stride = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        unsigned word = words[i];
        for (int byte = 0; byte < 4; byte++)
            atomicAdd(&local[(word >> (8 * byte)) & 255], 1u);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
