// What is freed or destroyed twice, or used after that or after a reset of the device, is refused.
// Where NVIDIA's libraries answer, the error is theirs; what they do with handles that are gone is
// undefined, and mostly the end of the program.

#include <cstring>
#include <functional>

#include <sys/mman.h>

#include "program.h"

__global__ void nothing() {}

// The call fails with one of the errors for a handle that is none.
#define REFUSED(call) verify_refused((call), #call, __LINE__)

void verify_refused(cudaError_t found, const char *call, int line) {
    bool is_value = found == cudaErrorInvalidValue;
    verify_fails(found, is_value ? found : cudaErrorInvalidResourceHandle, call, line);
}

using Reset = std::function<void()>;

// What is below makes something, ends it with a reset or by itself, and goes on with it.

void memory(const Reset &reset) {
    int *device, *managed, *host, value = 0;
    static std::vector<char> pages(3 * 4096);
    char *own = pages.data() + (4096 - (size_t)pages.data() % 4096), *seen;
    CHECK(cudaMalloc(&device, 1024));
    CHECK(cudaMallocManaged(&managed, 1024));
    CHECK(cudaMallocHost(&host, 1024));
    CHECK(cudaHostRegister(own, 4096, cudaHostRegisterMapped));
    FAILS(cudaHostRegister(own, 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
    CHECK(cudaHostGetDevicePointer((void **)&seen, own, 0));
    strcpy(own, "mine");
    FAILS(cudaFree((char *)device + 16), cudaErrorInvalidValue);
    FAILS(cudaFree(host), cudaErrorInvalidValue);
    FAILS(cudaFreeHost(device), cudaErrorInvalidValue);
    if (reset) {
        reset();
    } else {
        CHECK(cudaFree(device));
        CHECK(cudaFree(managed));
        CHECK(cudaFreeHost(host));
        CHECK(cudaHostUnregister(own));
    }
    FAILS(cudaHostUnregister(own), cudaErrorHostMemoryNotRegistered);
    verify(strcmp(own, "mine") == 0, "memory that was registered has lost its content", 0);
    CHECK(cudaHostRegister(own, 4096, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer((void **)&seen, own, 0));
    CHECK(cudaHostUnregister(own));
    FAILS(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    FAILS(cudaMemset(device, 0, sizeof value), cudaErrorInvalidValue);
    FAILS(cudaFree(device), cudaErrorInvalidValue);
    FAILS(cudaFree(managed), cudaErrorInvalidValue);
    FAILS(cudaFreeHost(host), cudaErrorInvalidValue);
    FAILS(cudaFree(&value), cudaErrorInvalidValue);
    FAILS(cudaFreeHost(&value), cudaErrorInvalidValue);
    CHECK(cudaFree(nullptr));
    CHECK(cudaFreeHost(nullptr));
    CHECK(cudaFreeArray(nullptr));
    CHECK(cudaFreeMipmappedArray(nullptr));
}

// Memory that is registered ends before its context does.
void registered_and_unmapped() {
    const size_t bytes = 2 << 20;
    const int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *own = mmap(nullptr, bytes, rights, flags, -1, 0), *seen;
    CHECK(cudaHostRegister(own, bytes, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&seen, own, 0));
    munmap(own, bytes);
    // What is there now is not touched.
    char *other = (char *)mmap(own, 4096, rights, flags | MAP_FIXED, -1, 0);
    strcpy(other, "other");
    CHECK(cudaDeviceReset());
    verify(strcmp(other, "other") == 0, "memory of the program is replaced", 0);
    munmap(other, 4096);
}

void pools() {
    int *data;
    CHECK(cudaMallocAsync(&data, 1024, nullptr));
    CHECK(cudaFreeAsync(data, nullptr));
    FAILS(cudaFreeAsync(data, nullptr), cudaErrorInvalidValue);
    CHECK(cudaDeviceSynchronize());
    FAILS(cudaFree(data), cudaErrorInvalidValue);
    cudaMemPool_t pool;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    CHECK(cudaMemPoolDestroy(pool));
    FAILS(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
}

void streams(const Reset &reset) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    if (reset)
        reset();
    else
        CHECK(cudaStreamDestroy(stream));
    REFUSED(cudaStreamSynchronize(stream));
    REFUSED(cudaStreamQuery(stream));
    REFUSED(cudaMallocAsync((void **)&stream, 16, stream));
    nothing<<<1, 1, 0, stream>>>();
    REFUSED(cudaPeekAtLastError());
    REFUSED(cudaStreamDestroy(stream));
    FAILS(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
}

void events(const Reset &reset) {
    cudaEvent_t event, other;
    float milliseconds;
    CHECK(cudaEventCreate(&event));
    CHECK(cudaEventCreate(&other));
    CHECK(cudaEventRecord(event));
    if (reset)
        reset();
    else
        CHECK(cudaEventDestroy(event));
    REFUSED(cudaEventQuery(event));
    REFUSED(cudaEventSynchronize(event));
    REFUSED(cudaEventRecord(event));
    REFUSED(cudaStreamWaitEvent(nullptr, event, 0));
    REFUSED(cudaEventElapsedTime(&milliseconds, event, other));
    REFUSED(cudaEventDestroy(event));
    FAILS(cudaEventDestroy(nullptr), cudaErrorInvalidResourceHandle);
}

void textures(const Reset &reset) {
    cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();
    cudaResourceDesc resource = {};
    cudaTextureDesc sampling = {};
    cudaTextureObject_t texture;
    cudaSurfaceObject_t surface;
    cudaExtent extent;
    unsigned flags;
    float value;
    resource.resType = cudaResourceTypeArray;
    cudaArray_t &array = resource.res.array.array;
    CHECK(cudaMallocArray(&array, &floats, 16, 16, cudaArraySurfaceLoadStore));
    CHECK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    if (reset) {
        reset();
    } else {
        CHECK(cudaDestroyTextureObject(texture));
        CHECK(cudaDestroySurfaceObject(surface));
        CHECK(cudaFreeArray(array));
    }
    cudaTextureDesc found;
    FAILS(cudaGetTextureObjectTextureDesc(&found, texture), cudaErrorInvalidValue);
    REFUSED(cudaArrayGetInfo(&floats, &extent, &flags, array));
    REFUSED(cudaMemcpy2DToArray(array, 0, 0, &value, 4, 4, 1, cudaMemcpyHostToDevice));
    REFUSED(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    REFUSED(cudaFreeArray(array));
}

void graphs() {
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t executable;
    size_t count;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    FAILS(cudaGraphGetNodes(graph, nullptr, &count), cudaErrorInvalidValue);
    FAILS(cudaGraphDestroy(graph), cudaErrorInvalidValue);
    CHECK(cudaGraphLaunch(executable, nullptr));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphExecDestroy(executable));
    FAILS(cudaGraphLaunch(executable, nullptr), cudaErrorInvalidValue);
    FAILS(cudaGraphExecDestroy(executable), cudaErrorInvalidValue);
    FAILS(cudaGraphDestroy(nullptr), cudaErrorInvalidValue);
}

// Graphs belong to no context.
void graphs_after_reset() {
    cudaGraph_t graph;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    CHECK(cudaDeviceReset());
    CHECK(cudaGraphDestroy(graph));
}

int main() {
    const Reset resets[] = {nullptr, [] { CHECK(cudaDeviceReset()); }};
    for (const Reset &reset : resets) {
        memory(reset);
        streams(reset);
        events(reset);
        textures(reset);
    }
    registered_and_unmapped();
    pools();
    graphs();
    graphs_after_reset();
    CHECK(cudaDeviceReset());
    CHECK(cudaDeviceReset());
    nothing<<<1, 1>>>();
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    printf("lifetimes: right\n");
}
