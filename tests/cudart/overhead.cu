// What a call of the runtime costs beside the driver's call below it. It is no test. It is built as
// the programs are, with -O2 -ldl: without the first, what nvcc makes of `<<<>>>` costs as much as
// the runtime's part of it.
//
// Other work of the machine disturbs some loops by more than the runtime costs. So loops are short,
// those of the runtime and of the driver in turn, in pairs that begin now with one and now with the
// other, and a figure is the median of the differences of many pairs. Each line has the median, the
// least and the largest of ROUNDS such figures.

#include <algorithm>
#include <chrono>

#include <cuda.h>
#include <dlfcn.h>

#include "programs/program.h"

// A stream takes some 1,000 launches, then a launch waits for the device.
constexpr int CALLS = 2000, LAUNCHES = 100, PAIRS = 201, ROUNDS = 9;

__global__ void nothing() {}

template <typename F> double ns_of_each(int calls, F call) {
    auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; i++)
        call();
    auto after = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::nano>(after - before).count() / calls;
}

double median(std::vector<double> of) {
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

// Medians of the pairs of a round: the runtime, the driver, and their difference.
struct Round {
    double runtime, driver, difference;
};

template <typename F, typename G> Round round_of(int calls, F runtime, G driver) {
    std::vector<double> runtimes, drivers, differences;
    for (int i = 0; i < 2 * PAIRS; i++) {
        bool is_runtime = (i + 1) / 2 % 2 == 0;
        if (is_runtime)
            runtimes.push_back(ns_of_each(calls, runtime));
        else
            drivers.push_back(ns_of_each(calls, driver));
        CHECK(cudaDeviceSynchronize());
    }
    for (int i = 0; i < PAIRS; i++)
        differences.push_back(runtimes[i] - drivers[i]);
    return {median(runtimes), median(drivers), median(differences)};
}

template <typename F, typename G> void compare(const char *name, int calls, F runtime, G driver) {
    std::vector<double> runtimes, drivers, differences;
    for (int i = 0; i < ROUNDS; i++) {
        Round round = round_of(calls, runtime, driver);
        runtimes.push_back(round.runtime);
        drivers.push_back(round.driver);
        differences.push_back(round.difference);
    }
    auto [least, largest] = std::minmax_element(differences.begin(), differences.end());
    printf("%-16s runtime %8.1f ns, driver %8.1f ns, difference %7.1f ns (%.1f to %.1f)\n", name,
           median(runtimes), median(drivers), median(differences), *least, *largest);
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
    cudaKernel_t kernel;
    CHECK(cudaGetKernel(&kernel, (const void *)nothing));
    auto launch_driver = [&](void *what) {
        launch((CUfunction)what, 1, 1, 1, 1, 1, 1, 0, 0, nullptr, nullptr);
    };
    auto launch_function = [&] { launch_driver(function); };
    int chosen;
    compare("get device", CALLS, [&] { cudaGetDevice(&chosen); }, [&] { device(&chosen); });
    compare("query an event", CALLS, [&] { cudaEventQuery(event); }, [&] { query(event); });
    compare(
        "launch", LAUNCHES,
        [&] { cudaLaunchKernel((const void *)nothing, dim3(1), dim3(1), nullptr, 0, 0); },
        launch_function);
    compare("<<<>>>", LAUNCHES, [&] { nothing<<<1, 1>>>(); }, launch_function);
    // What the driver itself takes more for a kernel of no context.
    compare("CUkernel", LAUNCHES, [&] { launch_driver(kernel); }, launch_function);
    CHECK(cudaEventDestroy(event));
}
