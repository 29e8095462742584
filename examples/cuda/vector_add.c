/* Adds two vectors by the CUDA driver API, many times, and copies them both ways. In a guest of
   Causeway it marks phases, so that the host counts the exits of launches and copies apart.

       causeway cuda --install lib
       cc -O2 -o vector_add vector_add.c -Llib -lcuda
       causeway cuda -- ./vector_add ../vector_add/src/vector_add.ptx
       causeway run --kernel vmlinuz --program ./vector_add \
           --file ../vector_add/src/vector_add.ptx -- vector_add.ptx

   What it needs of cuda.h stands here, so that it can be built without NVIDIA's toolkit. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <termios.h>
#include <unistd.h>

typedef uint64_t CUdeviceptr;
typedef struct context *CUcontext;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct stream *CUstream;

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuCtxSetCurrent(CUcontext context);
int cuCtxSynchronize(void);
int cuModuleLoadData(CUmodule *module, const void *image);
int cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
int cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
int cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   CUstream stream, void **parameters, void **extra);

enum { SCHED_SPIN = 1 };    /* CU_CTX_SCHED_SPIN: a wait that sleeps takes exits in a guest */
enum { LENGTH = 1000, BYTES = 4 * LENGTH, TIMES = 200 };
enum { LARGE_BYTES = 1 << 20, LARGE_TIMES = 10 };

static void check(int result, const char *call) {
    if (result != 0) {
        fprintf(stderr, "vector_add: %s failed with %d\n", call, result);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

/* Marks of phases for the host (docs/guests.md, "Phases"). Elsewhere the program marks none. */
enum { TEXT = 0xcac, MARK = 0xcb0, FORGET = 0, DATA_BEGIN = 18, PHASE_END = 32, TOTALS = 33 };
static int in_guest;

static void put(const void *text, size_t bytes) {
    outl(FORGET, MARK);
    for (size_t at = 0; at < bytes; at += 4) {
        uint32_t word = 0;
        memcpy(&word, (const char *)text + at, bytes - at < 4 ? bytes - at : 4);
        outl(word, TEXT);
    }
}

static void begin_phase(const char *name) {
    if (!in_guest) return;
    tcdrain(1);             /* what was printed causes exits until it is sent */
    put(name, strlen(name));
    outl(DATA_BEGIN, MARK);
}

static void end_phase(uint64_t operations, uint64_t bytes) {
    if (!in_guest) return;
    outl(PHASE_END, MARK);
    uint64_t totals[3] = {operations, bytes, 0};
    put(totals, sizeof totals);
    outl(TOTALS, MARK);
}

/* What the program has on the device. */
static CUfunction function;
static CUdeviceptr a, b, sum;

static void submit(void) {
    unsigned length = LENGTH;
    void *parameters[] = {&a, &b, &sum, &length};
    CHECK(cuLaunchKernel(function, (LENGTH + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, parameters,
                         NULL));
}

static void launch(void) {
    submit();
    CHECK(cuCtxSynchronize());
}

static void copy(uint32_t *memory) {
    CHECK(cuMemcpyHtoD_v2(a, memory, BYTES));
    CHECK(cuMemcpyDtoH_v2(memory, sum, BYTES));
}

/* Copies a large piece of memory to the device and back, some times. */
static void copy_large(CUdeviceptr device, void *memory, const char *name) {
    begin_phase(name);
    for (int i = 0; i < LARGE_TIMES; i++) {
        CHECK(cuMemcpyHtoD_v2(device, memory, LARGE_BYTES));
        CHECK(cuMemcpyDtoH_v2(memory, device, LARGE_BYTES));
    }
    end_phase(2 * LARGE_TIMES, 2 * (uint64_t)LARGE_TIMES * LARGE_BYTES);
}

/* Copies vectors through `memory` and adds them. sum[i] becomes 5 i. */
static void compute(uint32_t *memory) {
    for (uint32_t i = 0; i < LENGTH; i++) memory[i] = 2 * i;
    CHECK(cuMemcpyHtoD_v2(b, memory, BYTES));
    for (uint32_t i = 0; i < LENGTH; i++) memory[i] = 3 * i;
    CHECK(cuMemcpyHtoD_v2(a, memory, BYTES));
    memset(memory, 0, BYTES);
    launch();
    CHECK(cuMemcpyDtoH_v2(memory, sum, BYTES));
    for (uint32_t i = 0; i < LENGTH; i++) {
        if (memory[i] != 5 * i) {
            fprintf(stderr, "vector_add: sum %u is %u instead of %u\n", i, memory[i], 5 * i);
            exit(1);
        }
    }
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 65536);
    if (!file || !text || fread(text, 1, 65535, file) == 0) {
        fprintf(stderr, "vector_add: cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    return text;
}

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: vector_add PTX [sleep]\n");
        return 2;
    }
    int sleeps = count > 2 && strcmp(arguments[2], "sleep") == 0;
    in_guest = getenv("CAUSEWAY_SOCKET") == NULL && access("/dev/uio0", F_OK) == 0
        && ioperm(TEXT, 8, 1) == 0;
    int device;
    CUcontext context;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxSetFlags_v2(device, sleeps ? 0 : SCHED_SPIN));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, read_text(arguments[1])));
    CHECK(cuModuleGetFunction(&function, module, "vector_add"));
    CHECK(cuMemAlloc_v2(&a, BYTES));
    CHECK(cuMemAlloc_v2(&b, BYTES));
    CHECK(cuMemAlloc_v2(&sum, BYTES));
    CUdeviceptr large;
    CHECK(cuMemAlloc_v2(&large, LARGE_BYTES));
    void *pinned;
    CHECK(cuMemHostAlloc(&pinned, LARGE_BYTES, 0));
    uint32_t *pageable = calloc(1, LARGE_BYTES);
    if (!pageable) return 1;
    /* The first copies of a kind may get memory for them. */
    compute(pinned);
    compute(pageable);
    CHECK(cuMemcpyHtoD_v2(large, pageable, LARGE_BYTES));
    CHECK(cuMemcpyDtoH_v2(pageable, large, LARGE_BYTES));

    begin_phase("launch and wait");
    for (int i = 0; i < TIMES; i++) launch();
    end_phase(2 * TIMES, 0);
    begin_phase("launches, one wait");
    for (int i = 0; i < TIMES; i++) submit();
    CHECK(cuCtxSynchronize());
    end_phase(TIMES + 1, 0);
    begin_phase("copies, pinned memory");
    for (int i = 0; i < TIMES; i++) copy(pinned);
    end_phase(2 * TIMES, 2 * (uint64_t)TIMES * BYTES);
    begin_phase("copies, pageable memory");
    for (int i = 0; i < TIMES; i++) copy(pageable);
    end_phase(2 * TIMES, 2 * (uint64_t)TIMES * BYTES);
    copy_large(large, pinned, "copies of 1 MiB, pinned memory");
    copy_large(large, pageable, "copies of 1 MiB, pageable memory");

    compute(pinned);
    compute(pageable);
    printf("%d sums are right\n", LENGTH);
    return 0;
}
