// What the programs here share: a call that fails, or a result that is wrong, ends the program.

#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

// Of cuda_profiler_api.h, which is in another package.
extern "C" cudaError_t cudaProfilerStart(void);
extern "C" cudaError_t cudaProfilerStop(void);

#define CHECK(call) check((call), #call, __FILE__, __LINE__)

inline void check(cudaError_t error, const char *call, const char *file, int line) {
    if (error != cudaSuccess) {
        fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, cudaGetErrorString(error),
                cudaGetErrorName(error));
        exit(1);
    }
}

// Checks that the launch before was taken.
#define CHECK_LAUNCH() CHECK(cudaGetLastError())

// Memory of the device, freed with its owner.
template <typename T> class Buffer {
  public:
    explicit Buffer(size_t count) : count(count) { CHECK(cudaMalloc(&data, count * sizeof(T))); }
    explicit Buffer(const std::vector<T> &from) : Buffer(from.size()) {
        CHECK(cudaMemcpy(data, from.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    ~Buffer() { CHECK(cudaFree(data)); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    std::vector<T> read() const {
        std::vector<T> into(count);
        CHECK(cudaMemcpy(into.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
        return into;
    }

    const size_t count;
    T *data = nullptr;
};

// Numbers that are the same in each run (the constants are Knuth's for MMIX).
class Random {
  public:
    unsigned next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return (unsigned)(state >> 33);
    }
    // At least 0 and less than 1.
    float fraction() { return (next() & 0xffffff) / 16777216.0f; }

  private:
    unsigned long long state = 1;
};

inline void verify(bool is_right, const char *what, size_t at) {
    if (!is_right) {
        fprintf(stderr, "wrong: %s, at %zu\n", what, at);
        exit(1);
    }
}

// The call fails with this error, which is the thread's last one until it is asked for.
#define FAILS(call, wanted) verify_fails((call), (wanted), #call, __LINE__)

inline void verify_fails(cudaError_t found, cudaError_t wanted, const char *call, int line) {
    if (found != wanted)
        fprintf(stderr, "%s: %s, not %s\n", call, cudaGetErrorName(found),
                cudaGetErrorName(wanted));
    verify(found == wanted, call, line);
    verify(cudaPeekAtLastError() == wanted, "the last error", line);
    verify(cudaGetLastError() == wanted, "the last error", line);
    verify(cudaGetLastError() == cudaSuccess, "no error any more", line);
}

inline void verify_near(const std::vector<float> &found, const std::vector<float> &wanted,
                        float tolerance, const char *what) {
    verify(found.size() == wanted.size(), what, found.size());
    for (size_t i = 0; i < found.size(); i++)
        verify(std::fabs(found[i] - wanted[i]) <= tolerance * (1 + std::fabs(wanted[i])), what, i);
}

inline int blocks_for(int count, int threads) { return (count + threads - 1) / threads; }

// Launches and waits between this and `end` are for a profiler, in the second of two runs: the
// first has loaded the kernels. In a guest of Causeway, its host counts their exits.
class Measured {
  public:
    Measured() {
        CHECK(cudaDeviceSynchronize());
        if (is_second)
            CHECK(cudaProfilerStart());
    }
    void end() {
        CHECK(cudaDeviceSynchronize());
        if (is_second)
            CHECK(cudaProfilerStop());
    }
    inline static bool is_second = false;
};

// Runs what the program does twice.
inline int run_twice(const char *name, void (*run)()) {
    // A wait that sleeps takes exits.
    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
    run();
    Measured::is_second = true;
    run();
    printf("%s: right\n", name);
    return 0;
}
