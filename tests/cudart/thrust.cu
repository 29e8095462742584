// What programs with Thrust and CUB take: a sort of 10^7 keys and a sum of 10^8 values, medians of
// calls that are waited for. It is no test. It is built as the programs are, with the headers of
// PyPI's nvidia-cuda-cccl.

#include <algorithm>
#include <chrono>
#include <functional>

#include <cub/device/device_reduce.cuh>
#include <thrust/device_vector.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include "programs/program.h"

constexpr int KEYS = 10000000, VALUES = 100000000, TIMES = 51;

__global__ void scramble(unsigned *keys, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        keys[i] = i * 2654435761u;
}

double median_ms(const std::function<void()> &prepare, const std::function<void()> &call) {
    std::vector<double> times;
    for (int i = 0; i < TIMES; i++) {
        prepare();
        CHECK(cudaDeviceSynchronize());
        auto before = std::chrono::steady_clock::now();
        call();
        CHECK(cudaDeviceSynchronize());
        auto after = std::chrono::steady_clock::now();
        times.push_back(std::chrono::duration<double, std::milli>(after - before).count());
    }
    std::sort(times.begin(), times.end());
    return times[TIMES / 2];
}

int main() {
    thrust::device_vector<unsigned> keys(KEYS);
    unsigned *all = thrust::raw_pointer_cast(keys.data());
    double sort = median_ms([&] { scramble<<<1024, 256>>>(all, KEYS); },
                            [&] { thrust::sort(keys.begin(), keys.end()); });
    verify(thrust::is_sorted(keys.begin(), keys.end()), "order", 0);

    thrust::device_vector<int> values(VALUES, 3);
    Buffer<long long> sum(1);
    size_t bytes = 0;
    auto reduce = [&](void *memory) {
        CHECK(cub::DeviceReduce::Reduce(memory, bytes, values.begin(), sum.data, VALUES,
                                        cuda::std::plus<long long>{}, 0ll));
    };
    reduce(nullptr);
    Buffer<char> memory(bytes);
    double total = median_ms([] {}, [&] { reduce(memory.data); });
    verify(sum.read()[0] == 3ll * VALUES, "sum", 0);
    printf("thrust: right, sort %.4f ms, reduce %.4f ms\n", sort, total);
}
