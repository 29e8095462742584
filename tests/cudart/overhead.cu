// What a call of the runtime costs beside the driver's call below it: pairs of loops in turn, and
// the median, the least and the largest of their differences. It is no test. It is built as the
// programs are, with -ldl.

#include <algorithm>
#include <chrono>

#include <cuda.h>
#include <dlfcn.h>

#include "programs/program.h"

constexpr int CALLS = 200000, PAIRS = 15;

__global__ void nothing() {}

template <typename F> double ns_of_each(int calls, F call) {
    auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; i++)
        call();
    auto after = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::nano>(after - before).count() / calls;
}

template <typename F, typename G> void compare(const char *name, int calls, F runtime, G driver) {
    std::vector<double> runtimes, drivers, differences;
    for (int i = 0; i < PAIRS; i++) {
        runtimes.push_back(ns_of_each(calls, runtime));
        CHECK(cudaDeviceSynchronize());
        drivers.push_back(ns_of_each(calls, driver));
        CHECK(cudaDeviceSynchronize());
        differences.push_back(runtimes.back() - drivers.back());
    }
    for (auto *all : {&runtimes, &drivers, &differences})
        std::sort(all->begin(), all->end());
    printf("%-16s runtime %8.1f ns, driver %8.1f ns, difference %7.1f ns (%.1f to %.1f)\n", name,
           runtimes[PAIRS / 2], drivers[PAIRS / 2], differences[PAIRS / 2], differences[0],
           differences[PAIRS - 1]);
}

int main() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    verify(library != nullptr, "libcuda.so.1 is missing", 0);
    auto query = (decltype(&cuEventQuery))dlsym(library, "cuEventQuery");
    auto device = (decltype(&cuCtxGetDevice))dlsym(library, "cuCtxGetDevice");
    auto launch = (decltype(&cuLaunchKernel))dlsym(library, "cuLaunchKernel");
    CHECK(cudaFree(nullptr));
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    CHECK(cudaEventRecord(event));
    CHECK(cudaDeviceSynchronize());
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, (const void *)nothing));
    int chosen;
    compare("get device", CALLS, [&] { cudaGetDevice(&chosen); }, [&] { device(&chosen); });
    compare("query an event", CALLS, [&] { cudaEventQuery(event); }, [&] { query(event); });
    compare(
        "launch", 2000,
        [&] { cudaLaunchKernel((const void *)nothing, dim3(1), dim3(1), nullptr, 0, 0); },
        [&] { launch((CUfunction)function, 1, 1, 1, 1, 1, 1, 0, 0, nullptr, nullptr); });
    compare(
        "<<<>>>", 2000, [&] { nothing<<<1, 1>>>(); },
        [&] { launch((CUfunction)function, 1, 1, 1, 1, 1, 1, 0, 0, nullptr, nullptr); });
    CHECK(cudaEventDestroy(event));
}
