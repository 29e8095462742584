// Bytes counted by value: a histogram of each block in shared memory, added to that of the device.

#include "program.h"

constexpr int COUNT = 100000, BINS = 256;

__device__ unsigned bins[BINS];

__global__ void count(const unsigned char *bytes, int size) {
    __shared__ unsigned own[BINS];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
        atomicAdd(&own[bytes[i]], 1);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

void run() {
    std::vector<unsigned char> bytes(COUNT);
    std::vector<unsigned> wanted(BINS), found(BINS);
    Random random;
    for (unsigned char &byte : bytes) {
        byte = (unsigned char)(random.next() % BINS * (random.next() % BINS) / BINS);
        wanted[byte]++;
    }
    // As a program does that has its memory already, and wants to copy while the device works.
    CHECK(cudaHostRegister(bytes.data(), bytes.size(), cudaHostRegisterDefault));
    Buffer<unsigned char> there(COUNT);
    CHECK(cudaMemcpyAsync(there.data, bytes.data(), COUNT, cudaMemcpyHostToDevice));
    void *zeroed;
    CHECK(cudaGetSymbolAddress(&zeroed, bins));
    CHECK(cudaMemset(zeroed, 0, sizeof bins));
    Measured measured;
    count<<<8, BINS>>>(there.data, COUNT);
    CHECK_LAUNCH();
    measured.end();
    CHECK(cudaMemcpyFromSymbol(found.data(), bins, sizeof bins));
    CHECK(cudaHostUnregister(bytes.data()));
    for (int i = 0; i < BINS; i++)
        verify(found[i] == wanted[i], "bin", i);
}

int main() { return run_twice("histogram", run); }
