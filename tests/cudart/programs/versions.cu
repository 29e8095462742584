// What is different in the versions of the API, in that whose headers the program is built with:
// structures of other sizes, and functions with other parameters.

#include <cstring>

#include "program.h"

// Something with bytes behind it, which nobody may write.
template <typename T> struct Guarded {
    T it;
    unsigned char behind[64];

    Guarded() { memset((void *)this, 0x5a, sizeof *this); }
    void check(const char *what) const {
        for (size_t i = 0; i < sizeof behind; i++)
            verify(behind[i] == 0x5a, what, i);
    }
};

int attribute(cudaDeviceAttr number) {
    int value;
    CHECK(cudaDeviceGetAttribute(&value, number, 0));
    return value;
}

void properties() {
    Guarded<cudaDeviceProp> guarded;
    CHECK(cudaGetDeviceProperties(&guarded.it, 0));
    guarded.check("behind the properties");
    const cudaDeviceProp &it = guarded.it;
    size_t free, total;
    CHECK(cudaMemGetInfo(&free, &total));
    verify(it.totalGlobalMem >= total && strlen(it.name) > 0, "memory", it.totalGlobalMem);
    const struct {
        size_t found;
        cudaDeviceAttr number;
    } fields[] = {
        {(size_t)it.maxGridSize[2], cudaDevAttrMaxGridDimZ},
        {it.totalConstMem, cudaDevAttrTotalConstantMemory},
        {it.texturePitchAlignment, cudaDevAttrTexturePitchAlignment},
        {(size_t)it.multiProcessorCount, cudaDevAttrMultiProcessorCount},
        {(size_t)it.maxTexture1D, cudaDevAttrMaxTexture1DWidth},
        {(size_t)it.maxTexture2D[1], cudaDevAttrMaxTexture2DHeight},
        {it.surfaceAlignment, cudaDevAttrSurfaceAlignment},
        {(size_t)it.unifiedAddressing, cudaDevAttrUnifiedAddressing},
        {(size_t)it.memoryBusWidth, cudaDevAttrGlobalMemoryBusWidth},
        {it.sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor},
        {(size_t)it.cooperativeLaunch, cudaDevAttrCooperativeLaunch},
        {it.sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin},
        {it.reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock},
        {(size_t)it.memoryPoolsSupported, cudaDevAttrMemoryPoolsSupported},
        {(size_t)it.clusterLaunch, cudaDevAttrClusterLaunch},
#if CUDART_VERSION < 13000
        {(size_t)it.clockRate, cudaDevAttrClockRate},
        {(size_t)it.deviceOverlap, cudaDevAttrGpuOverlap},
        {(size_t)it.computeMode, cudaDevAttrComputeMode},
        {(size_t)it.memoryClockRate, cudaDevAttrMemoryClockRate},
        {(size_t)it.singleToDoublePrecisionPerfRatio, cudaDevAttrSingleToDoublePrecisionPerfRatio},
#endif
    };
    for (const auto &field : fields)
        verify(field.found == (size_t)attribute(field.number), "property", field.number);
}

void pointers() {
    Buffer<int> memory(16);
    Guarded<cudaPointerAttributes> found;
    CHECK(cudaPointerGetAttributes(&found.it, memory.data + 4));
    found.check("behind the attributes of a pointer");
    verify(found.it.type == cudaMemoryTypeDevice && found.it.device == 0, "type", found.it.type);
    verify(found.it.devicePointer == memory.data + 4, "address", 0);
}

__global__ void increment(int *value) { ++*value; }

// A kernel after another, which the capture is told.
void capture() {
    Buffer<int> value(std::vector<int>{40});
    cudaStream_t stream;
    cudaGraph_t graph, known;
    cudaGraphExec_t executable;
    cudaStreamCaptureStatus status;
    unsigned long long id;
    const cudaGraphNode_t *after;
    size_t count;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    increment<<<1, 1, 0, stream>>>(value.data);
    CHECK_LAUNCH();
#if CUDART_VERSION < 13000
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &known, &after, &count));
#else
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &known, &after, nullptr, &count));
#endif
    verify(status == cudaStreamCaptureStatusActive && count == 1, "capture", count);
    cudaGraphNode_t first = after[0], second;
    CHECK(cudaGraphAddEmptyNode(&second, known, &first, 1));
#if CUDART_VERSION < 13000
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &second, 1,
                                              cudaStreamSetCaptureDependencies));
    const cudaGraphEdgeData *edges;
    CHECK(cudaStreamGetCaptureInfo_v3(stream, &status, &id, &known, &after, &edges, &count));
#else
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &second, nullptr, 1,
                                              cudaStreamSetCaptureDependencies));
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &known, &after, nullptr, &count));
#endif
    verify(count == 1 && after[0] == second, "what the capture goes on with", count);
    increment<<<1, 1, 0, stream>>>(value.data);
    CHECK_LAUNCH();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    verify(value.read()[0] == 42, "sum", value.read()[0]);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

void edges() {
    cudaGraph_t graph;
    cudaGraphNode_t nodes[3], from[3], to[3];
    size_t count;
    CHECK(cudaGraphCreate(&graph, 0));
    for (auto &node : nodes)
        CHECK(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
#if CUDART_VERSION < 13000
#define NO_DATA
#else
#define NO_DATA nullptr,
#endif
    CHECK(cudaGraphAddDependencies(graph, nodes, nodes + 1, NO_DATA 2));
    count = 3;
    CHECK(cudaGraphGetEdges(graph, from, to, NO_DATA &count));
    verify(count == 2 && from[0] == nodes[0] && to[1] == nodes[2], "edges", count);
    count = 3;
    CHECK(cudaGraphNodeGetDependencies(nodes[2], from, NO_DATA &count));
    verify(count == 1 && from[0] == nodes[1], "what a node waits for", count);
    count = 3;
    CHECK(cudaGraphNodeGetDependentNodes(nodes[1], to, NO_DATA &count));
    verify(count == 1 && to[0] == nodes[2], "what waits for a node", count);
    CHECK(cudaGraphRemoveDependencies(graph, nodes, nodes + 1, NO_DATA 1));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, NO_DATA &count));
    verify(count == 1, "edges that are left", count);
    CHECK(cudaGraphDestroy(graph));
}

void managed() {
    int *value;
    CHECK(cudaMallocManaged(&value, sizeof *value));
    *value = 1;
#if CUDART_VERSION < 13000
    int places[] = {0, cudaCpuDeviceId};
#define HOW
#else
    cudaMemLocation places[] = {{cudaMemLocationTypeDevice, 0}, {cudaMemLocationTypeHost, 0}};
#define HOW 0,
#endif
    for (auto place : places) {
        CHECK(cudaMemAdvise(value, sizeof *value, cudaMemAdviseSetAccessedBy, place));
        CHECK(cudaMemPrefetchAsync(value, sizeof *value, place, HOW nullptr));
        increment<<<1, 1>>>(value);
        CHECK(cudaDeviceSynchronize());
    }
    verify(*value == 3, "sum in managed memory", *value);
    CHECK(cudaFree(value));
}

#if CUDART_VERSION < 13000
#undef cudaGetDeviceProperties
extern "C" cudaError_t cudaGetDeviceProperties(void *properties, int device);

// What only CUDA 12 has.
void names_of_before() {
    // The structure of CUDA 11.
    struct Old {
        char bytes[728];
    };
    Guarded<Old> old;
    cudaDeviceProp now;
    CHECK(cudaGetDeviceProperties(&old, 0));
    CHECK(cudaGetDeviceProperties_v2(&now, 0));
    old.check("behind the properties of CUDA 11");
    verify(memcmp(&old, &now, sizeof old.it) == 0, "properties of CUDA 11", 0);
    size_t now_bytes, before_bytes;
    CHECK(cudaThreadGetLimit(&before_bytes, cudaLimitPrintfFifoSize));
    CHECK(cudaDeviceGetLimit(&now_bytes, cudaLimitPrintfFifoSize));
    verify(now_bytes == before_bytes, "limit", before_bytes);
    double number = 0.5;
    CHECK(cudaSetDoubleForDevice(&number));
    CHECK(cudaThreadSynchronize());
    CHECK(cudaThreadExit());
}
#endif

int main() {
    int version;
    CHECK(cudaRuntimeGetVersion(&version));
    verify(version / 1000 == CUDART_VERSION / 1000, "version", version);
    properties();
    pointers();
    capture();
    edges();
    managed();
#if CUDART_VERSION < 13000
    names_of_before();
#endif
    printf("versions: right\n");
}
