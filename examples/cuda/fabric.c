/* Memory by a fabric handle: 64 bytes by which all machines of an NVLink fabric find it.

       causeway cuda --install lib
       cc -O2 -o fabric fabric.c -Llib -lcuda
       causeway cuda --gpu cuda:0,fabric=both -- ./fabric 64

   exports 64 MiB, imports them again, and writes by each what the other reads. With two more words,
   two processes do so, on one machine or on two that share a folder:

       causeway cuda --gpu cuda:0,fabric=export -- ./fabric 64 export /shared/handle
       causeway cuda --gpu cuda:0,fabric=import -- ./fabric 64 import /shared/handle

   The exporter writes the handle to the file, and waits until the importer has written to the
   memory and removed the file. It also runs on NVIDIA's driver. What it needs of cuda.h stands
   here, so that it can be built without NVIDIA's toolkit. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t CUdeviceptr;
typedef uint64_t Memory;
typedef struct context *CUcontext;
typedef struct { unsigned char data[64]; } Handle;
typedef struct { int type, id; } Location;
typedef struct {
    int type;
    unsigned handle_types;
    Location location;
    void *windows;
    unsigned char flags[8];
} Properties;
typedef struct { Location location; int flags; } Access;

int cuInit(unsigned flags);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuCtxSetCurrent(CUcontext context);
int cuMemCreate(Memory *memory, size_t bytes, const Properties *properties,
                unsigned long long flags);
int cuMemRelease(Memory memory);
int cuMemGetAllocationPropertiesFromHandle(Properties *properties, Memory memory);
int cuMemExportToShareableHandle(void *handle, Memory memory, int type, unsigned long long flags);
int cuMemImportFromShareableHandle(Memory *memory, void *handle, int type);
int cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr hint,
                        unsigned long long flags);
int cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, Memory memory, unsigned long long flags);
int cuMemUnmap(CUdeviceptr at, size_t bytes);
int cuMemSetAccess(CUdeviceptr at, size_t bytes, const Access *access, size_t count);
int cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t words);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);

enum { PINNED = 1, DEVICE = 1, READ_WRITE = 3, FABRIC = 8, FABRIC_SUPPORTED = 128 };
/* What the exporter writes to all words, and the importer afterwards. */
enum { EXPORTED = 0x0e0e0e0e, IMPORTED = 0x01010101 };
/* How long one process waits for the other. */
enum { PATIENCE_SECONDS = 60 };

static void check(int result, const char *call) {
    if (result != 0) {
        fprintf(stderr, "fabric: %s failed with %d\n", call, result);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static void fail(const char *what, const char *path) {
    fprintf(stderr, "fabric: %s %s\n", what, path);
    exit(1);
}

/* Maps memory of the device or of another machine. */
static CUdeviceptr map(Memory memory, size_t bytes) {
    CUdeviceptr at;
    Access access = {{DEVICE, 0}, READ_WRITE};
    CHECK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CHECK(cuMemMap(at, bytes, 0, memory, 0));
    CHECK(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

static void verify(CUdeviceptr at, size_t bytes, uint32_t wanted, const char *what) {
    uint32_t *found = malloc(bytes);
    if (!found) exit(1);
    CHECK(cuMemcpyDtoH_v2(found, at, bytes));
    for (size_t i = 0; i < bytes / 4; i++) {
        if (found[i] != wanted) {
            fprintf(stderr, "fabric: %s: word %zu is %#x instead of %#x\n", what, i, found[i],
                    wanted);
            exit(1);
        }
    }
    free(found);
}

static void sleep_a_little(void) {
    struct timespec time = {0, 10000000};
    nanosleep(&time, NULL);
}

/* Makes memory full of EXPORTED that has a handle, and maps it. */
static Handle export(Memory *memory, CUdeviceptr *at, size_t bytes) {
    Properties wanted = {PINNED, FABRIC, {DEVICE, 0}, NULL, {0}};
    Handle handle;
    CHECK(cuMemCreate(memory, bytes, &wanted, 0));
    *at = map(*memory, bytes);
    CHECK(cuMemsetD32_v2(*at, EXPORTED, bytes / 4));
    verify(*at, bytes, EXPORTED, "own memory");
    CHECK(cuMemExportToShareableHandle(&handle, *memory, FABRIC, 0));
    return handle;
}

/* Imports memory that a handle names, and reads and writes it. Returns where it is mapped. */
static CUdeviceptr import(Handle handle, size_t bytes) {
    Memory memory;
    Properties properties;
    CHECK(cuMemImportFromShareableHandle(&memory, &handle, FABRIC));
    CHECK(cuMemGetAllocationPropertiesFromHandle(&properties, memory));
    if (!(properties.handle_types & FABRIC)) fail("the import is not of", "a fabric handle");
    CUdeviceptr at = map(memory, bytes);
    verify(at, bytes, EXPORTED, "imported memory");
    CHECK(cuMemsetD32_v2(at, IMPORTED, bytes / 4));
    verify(at, bytes, IMPORTED, "written memory");
    CHECK(cuMemRelease(memory));
    return at;
}

static void export_to(const char *path, size_t bytes) {
    Memory memory;
    CUdeviceptr at;
    char part[4096];
    Handle handle = export(&memory, &at, bytes);
    /* Renamed when it is whole: the importer may look at any time. */
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "wb");
    if (!file || fwrite(&handle, sizeof handle, 1, file) != 1 || fclose(file) != 0 ||
        rename(part, path) != 0)
        fail("cannot write", path);
    for (int turn = 0; (file = fopen(path, "rb")); turn++) {
        fclose(file);
        if (turn == PATIENCE_SECONDS * 100) fail("nobody has imported", path);
        sleep_a_little();
    }
    verify(at, bytes, IMPORTED, "memory that was exported");
    printf("the importer has written to the exporter's memory\n");
}

static void import_from(const char *path, size_t bytes) {
    Handle handle;
    FILE *file = NULL;
    for (int turn = 0; !(file = fopen(path, "rb")); turn++) {
        if (turn == PATIENCE_SECONDS * 100) fail("there is no file", path);
        sleep_a_little();
    }
    if (fread(&handle, sizeof handle, 1, file) != 1) fail("there is no handle in", path);
    fclose(file);
    import(handle, bytes);
    remove(path);
    printf("the exporter's memory was read and written\n");
}

/* Does both in one process, and tries what must be refused. */
static void alone(size_t bytes) {
    Memory memory, other;
    CUdeviceptr at;
    Handle handle = export(&memory, &at, bytes), wrong = handle;
    CUdeviceptr imported = import(handle, bytes);
    verify(at, bytes, IMPORTED, "memory that was exported");
    wrong.data[20] ^= 1;
    if (cuMemImportFromShareableHandle(&other, &wrong, FABRIC) == 0)
        fail("there is memory of", "another handle");
    CHECK(cuMemUnmap(imported, bytes));
    printf("memory was exported, imported, read and written\n");
}

int main(int count, char **arguments) {
    int supported = 0;
    CUcontext context;
    const char *part = count == 4 ? arguments[2] : "alone";
    int is_exporter = !strcmp(part, "export"), is_importer = !strcmp(part, "import");
    int mib = count < 2 ? 0 : atoi(arguments[1]);
    if ((count != 2 && !is_exporter && !is_importer) || mib < 2 || mib % 2 != 0) {
        fprintf(stderr, "usage: fabric EVEN_MIB [export|import FILE]\n");
        return 2;
    }
    size_t bytes = (size_t)mib << 20;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetAttribute(&supported, FABRIC_SUPPORTED, 0));
    printf("HANDLE_TYPE_FABRIC_SUPPORTED is %d\n", supported);
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    if (is_exporter)
        export_to(arguments[3], bytes);
    else if (is_importer)
        import_from(arguments[3], bytes);
    else
        alone(bytes);
    return 0;
}
