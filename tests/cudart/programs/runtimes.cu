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

// Loads a library, has it work with memory of the program, and lets go of it.
void use(const std::string &folder, const Library &library, int *value) {
    std::string path = folder + "/" + library.name;
    void *loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!loaded) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
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

int main(int, char **words) {
    std::string folder = dirname(words[0]);
    Buffer<int> value(std::vector<int>{0});
    const Library libraries[] = {{"increment-12.so", 12, false},
                                 {"increment-13.so", 13, false},
                                 {"increment-12-static.so", 12, true},
                                 {"increment-13-static.so", 13, true}};
    // The second time they are loaded again.
    for (int round = 0; round < 2; round++)
        for (const Library &library : libraries)
            use(folder, library, value.data);
    verify(value.read()[0] == 2 * (2 * 11 + 2 * 12), "sum", value.read()[0]);
    printf("runtimes: right\n");
}
