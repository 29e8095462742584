/* Two devices by the CUDA driver API: copies between them, and a kernel of one that adds vectors in
   memory of the other, once the program has allowed that. Prints how fast copies are.

       causeway cuda --install lib
       cc -O2 -o peers peers.c -Llib -lcuda
       causeway cuda --gpu cuda:0 --gpu cuda:1 -- ./peers ../vector_add/src/vector_add.ptx 256
       causeway cuda --gpu software:0 --gpu software:1 -- ./peers ../vector_add/src/vector_add.ptx 1

   The number is the size of a copy in MiB. What it needs of cuda.h stands here, so that it can be
   built without NVIDIA's toolkit; it also runs on NVIDIA's driver. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef uint64_t CUdeviceptr;
typedef struct context *CUcontext;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct stream *CUstream;

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDeviceCanAccessPeer(int *can, int device, int peer);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuCtxSetCurrent(CUcontext context);
int cuCtxSynchronize(void);
int cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
int cuCtxDisablePeerAccess(CUcontext peer);
int cuModuleLoadData(CUmodule *module, const void *image);
int cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
int cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t words);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
int cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                 size_t bytes);
int cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   CUstream stream, void **parameters, void **extra);

enum { PEER_ACCESS_ALREADY_ENABLED = 704, PEER_ACCESS_NOT_ENABLED = 705 };
enum { PASSES = 4 };

static void check(int result, const char *call) {
    if (result != 0) {
        fprintf(stderr, "peers: %s failed with %d\n", call, result);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static void expect(int result, int wanted, const char *call) {
    if (result != wanted) {
        fprintf(stderr, "peers: %s answered %d instead of %d\n", call, result, wanted);
        exit(1);
    }
}
#define EXPECT(call, wanted) expect(call, wanted, #call)

static char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 65536);
    if (!file || !text || fread(text, 1, 65535, file) == 0) {
        fprintf(stderr, "peers: cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    return text;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Expects `words` words at `at`, of the device whose context is current: the first is `first`, and
   each further one larger by `step`. */
static void verify(CUdeviceptr at, uint32_t first, uint32_t step, size_t words, const char *what) {
    uint32_t *found = malloc(4 * words);
    if (!found) exit(1);
    CHECK(cuMemcpyDtoH_v2(found, at, 4 * words));
    for (size_t i = 0; i < words; i++) {
        uint32_t wanted = first + step * (uint32_t)i;
        if (found[i] != wanted) {
            fprintf(stderr, "peers: %s: word %zu is %u instead of %u\n", what, i, found[i], wanted);
            exit(1);
        }
    }
    free(found);
}

/* Copies from device 0 to device 1 some times, and returns the rate of the best in GB/s. */
static double copy(const CUdeviceptr memory[2], const CUcontext contexts[2], size_t bytes) {
    double best = 0;
    for (unsigned pass = 0; pass < PASSES; pass++) {
        CHECK(cuCtxSetCurrent(contexts[0]));
        CHECK(cuMemsetD32_v2(memory[0], 7 + pass, bytes / 4));
        CHECK(cuCtxSynchronize());
        double begun = seconds();
        CHECK(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], bytes));
        /* The call need not wait for a copy between devices. */
        CHECK(cuCtxSynchronize());
        CHECK(cuCtxSetCurrent(contexts[1]));
        CHECK(cuCtxSynchronize());
        double rate = 1e-9 * (double)bytes / (seconds() - begun);
        if (rate > best) best = rate;
        verify(memory[1], 7 + pass, 0, bytes / 4, "copy between devices");
    }
    return best;
}

/* Lets the device of the current context add vectors in memory of device 0, into memory of its
   own and of device 0. `sum` has the results: a[i] + b[i] = 2 i + 3 i. */
static void add(const char *ptx, CUdeviceptr remote, CUdeviceptr own, unsigned length) {
    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&function, module, "vector_add"));
    CUdeviceptr a = remote, b = remote + 4 * length, sums[2] = {own, remote + 8 * length};
    for (int place = 0; place < 2; place++) {
        void *parameters[] = {&a, &b, &sums[place], &length};
        CHECK(cuLaunchKernel(function, (length + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, parameters,
                             NULL));
    }
    CHECK(cuCtxSynchronize());
}

int main(int count, char **arguments) {
    if (count < 3 || atoi(arguments[2]) < 1) {
        fprintf(stderr, "usage: peers PTX MIB\n");
        return 2;
    }
    size_t bytes = (size_t)atoi(arguments[2]) << 20;
    enum { LENGTH = 1000 };
    int devices, can[2];
    CUcontext contexts[2];
    CUdeviceptr memory[2];
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    if (devices < 2) {
        fprintf(stderr, "peers: two devices are needed, and there is %d\n", devices);
        return 1;
    }
    for (int device = 0; device < 2; device++) {
        CHECK(cuDeviceCanAccessPeer(&can[device], device, 1 - device));
        CHECK(cuDevicePrimaryCtxRetain(&contexts[device], device));
        CHECK(cuCtxSetCurrent(contexts[device]));
        CHECK(cuMemAlloc_v2(&memory[device], bytes));
    }
    printf("%d devices, peers: %s\n", devices, can[0] && can[1] ? "yes" : "no");
    printf("copies without access: %.1f GB/s\n", copy(memory, contexts, bytes));
    if (!can[1]) return 0;

    CHECK(cuCtxSetCurrent(contexts[1]));
    EXPECT(cuCtxDisablePeerAccess(contexts[0]), PEER_ACCESS_NOT_ENABLED);
    CHECK(cuCtxEnablePeerAccess(contexts[0], 0));
    EXPECT(cuCtxEnablePeerAccess(contexts[0], 0), PEER_ACCESS_ALREADY_ENABLED);
    printf("copies with access: %.1f GB/s\n", copy(memory, contexts, bytes));

    CHECK(cuCtxSetCurrent(contexts[0]));
    uint32_t vectors[2 * LENGTH];
    for (uint32_t i = 0; i < LENGTH; i++) {
        vectors[i] = 2 * i;
        vectors[LENGTH + i] = 3 * i;
    }
    CHECK(cuMemcpyHtoD_v2(memory[0], vectors, sizeof vectors));
    CHECK(cuCtxSetCurrent(contexts[1]));
    add(read_text(arguments[1]), memory[0], memory[1], LENGTH);
    verify(memory[1], 0, 5, LENGTH, "sums in memory of device 1");
    CHECK(cuCtxDisablePeerAccess(contexts[0]));
    CHECK(cuCtxSetCurrent(contexts[0]));
    verify(memory[0] + 8 * LENGTH, 0, 5, LENGTH, "sums in memory of device 0");
    printf("sums of a peer's vectors are right\n");
    return 0;
}
