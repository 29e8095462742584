// The sum of many numbers: as many blocks as the device runs at a time, and an event for the time.

#include "program.h"

constexpr int COUNT = 1 << 17, BLOCK = 128;

__global__ void add(const int *values, unsigned long long *sum, int count) {
    __shared__ long long part[BLOCK];
    long long own = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        own += values[i];
    part[threadIdx.x] = own;
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        atomicAdd(sum, (unsigned long long)part[0]);
}

void run() {
    std::vector<int> numbers(COUNT);
    Random random;
    long long wanted = 0;
    for (int &number : numbers) {
        number = (int)(random.next() % 2001) - 1000;
        wanted += number;
    }
    int blocks, device;
    cudaDeviceProp properties;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaGetDeviceProperties(&properties, device));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, BLOCK, 0));
    verify(blocks > 0 && properties.multiProcessorCount > 0, "blocks", blocks);
    Buffer<int> there(numbers);
    unsigned long long *sum;
    CHECK(cudaMallocAsync(&sum, sizeof *sum, 0));
    CHECK(cudaMemsetAsync(sum, 0, sizeof *sum, 0));
    cudaEvent_t before, after;
    CHECK(cudaEventCreate(&before));
    CHECK(cudaEventCreate(&after));
    Measured measured;
    CHECK(cudaEventRecord(before));
    add<<<blocks * properties.multiProcessorCount, BLOCK>>>(there.data, sum, COUNT);
    CHECK_LAUNCH();
    CHECK(cudaEventRecord(after));
    measured.end();
    long long found;
    CHECK(cudaMemcpyAsync(&found, sum, sizeof found, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaFreeAsync(sum, 0));
    CHECK(cudaDeviceSynchronize());
    verify(found == wanted, "sum", found);
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, before, after));
    verify(milliseconds > 0, "time", 0);
    CHECK(cudaEventDestroy(before));
    CHECK(cudaEventDestroy(after));
}

int main() { return run_twice("reduction", run); }
