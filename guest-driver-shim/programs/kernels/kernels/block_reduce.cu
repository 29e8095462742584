// Sum, maximum and exclusive-or of a vector: a tree in shared memory in each block, then one atomic
// of each kind per block. The floats are whole numbers, so that their sum does not depend on the order.
struct Totals {
    unsigned long long sum;
    unsigned largest;
    unsigned parity;
    float float_sum;
    int smallest;
};

extern "C" __global__ void block_reduce(const unsigned *values, Totals *totals, unsigned n)
{
    __shared__ unsigned long long sums[256];
    __shared__ unsigned largest[256];
    __shared__ unsigned parity[256];
    __shared__ float floats[256];
    __shared__ int smallest[256];
    unsigned t = threadIdx.x, i = blockIdx.x * 256 + t;
    unsigned value = i < n ? values[i] : 0;
    sums[t] = value;
    largest[t] = value;
    parity[t] = value;
    floats[t] = float(value & 15);
    smallest[t] = int(value);
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (t < half) {
            sums[t] += sums[t + half];
            largest[t] = max(largest[t], largest[t + half]);
            parity[t] ^= parity[t + half];
            floats[t] += floats[t + half];
            smallest[t] = min(smallest[t], smallest[t + half]);
        }
        __syncthreads();
    }
    if (t == 0) {
        atomicAdd(&totals->sum, sums[0]);
        atomicMax(&totals->largest, largest[0]);
        atomicXor(&totals->parity, parity[0]);
        atomicAdd(&totals->float_sum, floats[0]);
        atomicMin(&totals->smallest, smallest[0]);
    }
}
