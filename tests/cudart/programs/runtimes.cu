// Several runtime libraries in one process: that of the program, and those of libraries that it
// loads, which lie beside it. Each has its own kernels and last error; memory and the device are
// the same for all.

#include <string>

#include <dlfcn.h>
#include <libgen.h>

#include "program.h"

__global__ void increment(int *value) { *value += 10; }

struct Library {
    const char *name;
    int cuda;
    // Whether its runtime library is in it, so that nobody else has the same.
    bool is_alone;
};

void *load(const std::string &folder, const Library &library) {
    std::string path = folder + "/" + library.name;
    void *loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!loaded) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return loaded;
}

// Loads a library, has it work with memory of the program, and lets go of it.
void use(const std::string &folder, const Library &library, int *value) {
    void *loaded = load(folder, library);
    auto version = (int (*)())dlsym(loaded, "version_here");
    auto increment_here = (int (*)(int *))dlsym(loaded, "increment_here");
    verify(version() / 1000 == library.cuda, "version of a library", version());
    CHECK((cudaError_t)increment_here(value));
    verify(cudaFree((void *)8) == cudaErrorInvalidValue, "error", 0);
    if (library.is_alone)
        CHECK((cudaError_t)increment_here(value));
    verify(cudaGetLastError() == cudaErrorInvalidValue, "the last error", 0);
    increment<<<1, 1>>>(value);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    verify(dlclose(loaded) == 0, "let go of a library", 0);
}

// Memory that a runtime has freed is freed for the others, and so is a device that it has reset.
void free_and_reset(const std::string &folder, const Library &library) {
    void *loaded = load(folder, library);
    auto increment_here = (int (*)(int *))dlsym(loaded, "increment_here");
    auto free_here = (int (*)(int *))dlsym(loaded, "free_here");
    auto reset_here = (int (*)())dlsym(loaded, "reset_here");
    int *value;
    for (bool is_here : {true, false}) {
        CHECK(cudaMalloc(&value, sizeof *value));
        CHECK((cudaError_t)increment_here(value));
        CHECK((cudaError_t)(is_here ? cudaDeviceReset() : reset_here()));
        verify(free_here(value) == cudaErrorInvalidValue, "memory of before", is_here);
        verify(cudaFree(value) == cudaErrorInvalidValue, "memory of before", is_here);
        CHECK(cudaMalloc(&value, sizeof *value));
        CHECK(cudaMemset(value, 0, sizeof *value));
        cudaGetLastError();
        increment<<<1, 1>>>(value);
        CHECK_LAUNCH();
        CHECK((cudaError_t)increment_here(value));
        int sum;
        CHECK(cudaMemcpy(&sum, value, sizeof sum, cudaMemcpyDeviceToHost));
        verify(sum == 11, "sum after a reset", sum);
        CHECK((cudaError_t)(is_here ? free_here(value) : cudaFree(value)));
        verify(free_here(value) == cudaErrorInvalidValue, "freed twice", is_here);
        verify(cudaFree(value) == cudaErrorInvalidValue, "freed twice", is_here);
        cudaGetLastError();
    }
    verify(dlclose(loaded) == 0, "let go of a library", 0);
}

int main(int, char **words) {
    std::string folder = dirname(words[0]);
    const Library libraries[] = {{"increment-12.so", 12, false},
                                 {"increment-13.so", 13, false},
                                 {"increment-12-static.so", 12, true},
                                 {"increment-13-static.so", 13, true}};
    int *value, sum;
    CHECK(cudaMalloc(&value, sizeof *value));
    CHECK(cudaMemset(value, 0, sizeof *value));
    // The second time they are loaded again.
    for (int round = 0; round < 2; round++)
        for (const Library &library : libraries)
            use(folder, library, value);
    CHECK(cudaMemcpy(&sum, value, sizeof sum, cudaMemcpyDeviceToHost));
    verify(sum == 2 * (2 * 11 + 2 * 12), "sum", sum);
    for (const Library &library : libraries)
        free_and_reset(folder, library);
    printf("runtimes: right\n");
}
