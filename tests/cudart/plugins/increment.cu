// A library with a kernel, which programs load that have a runtime library of their own.

#include <cuda_runtime.h>

namespace {
__global__ void increment(int *value) { ++*value; }
} // namespace

extern "C" int increment_here(int *value) {
    increment<<<1, 1>>>(value);
    cudaError_t launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}

// Forgets the error, for the next launch.
extern "C" int free_here(int *memory) {
    cudaError_t freed = cudaFree(memory);
    cudaGetLastError();
    return freed;
}

extern "C" int reset_here() { return cudaDeviceReset(); }

extern "C" int version_here() {
    int version = 0;
    cudaRuntimeGetVersion(&version);
    return version;
}
