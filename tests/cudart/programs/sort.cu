// Bitonic sort: small distances in shared memory, large ones in global memory.

#include <algorithm>

#include "program.h"

constexpr int COUNT = 1 << 13, BLOCK = 256;

__device__ void order(unsigned *values, unsigned i, unsigned j, bool is_rising) {
    if ((values[i] > values[j]) == is_rising) {
        unsigned kept = values[i];
        values[i] = values[j];
        values[j] = kept;
    }
}

__global__ void far(unsigned *values, unsigned length, unsigned distance) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, j = i ^ distance;
    if (j > i)
        order(values, i, j, (i & length) == 0);
}

__global__ void near(unsigned *values, unsigned length, unsigned distance) {
    __shared__ unsigned part[BLOCK];
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x, i = threadIdx.x;
    part[i] = values[at];
    __syncthreads();
    for (; distance > 0; distance /= 2) {
        if ((i ^ distance) > i)
            order(part, i, i ^ distance, (at & length) == 0);
        __syncthreads();
    }
    values[at] = part[i];
}

void run() {
    std::vector<unsigned> wanted(COUNT);
    Random random;
    for (unsigned &value : wanted)
        value = random.next();
    Buffer<unsigned> values(wanted);
    Measured measured;
    for (unsigned length = 2; length <= COUNT; length *= 2) {
        unsigned distance = length / 2;
        for (; distance >= BLOCK; distance /= 2)
            far<<<COUNT / BLOCK, BLOCK>>>(values.data, length, distance);
        near<<<COUNT / BLOCK, BLOCK>>>(values.data, length, distance);
    }
    CHECK_LAUNCH();
    measured.end();
    std::sort(wanted.begin(), wanted.end());
    std::vector<unsigned> found = values.read();
    for (int i = 0; i < COUNT; i++)
        verify(found[i] == wanted[i], "value", i);
}

int main() { return run_twice("sort", run); }
