// A graph that is built node by node: fills, copies and kernels, whose parameters are read back and
// changed; and functions of the driver by name.

#include <cstring>

#include <cuda.h>

#include "program.h"

#if CUDART_VERSION < 13000
#define ADD_NODE cudaGraphAddNode_v2
#else
#define ADD_NODE cudaGraphAddNode
#endif

constexpr int COUNT = 1000, BLOCK = 128;

__device__ int factor;

__global__ void scale(int *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] *= factor;
}

__global__ void add(int *values, const int *more, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] += more[i];
}

cudaKernelNodeParams kernel(void *function, void **arguments) {
    cudaKernelNodeParams parameters = {};
    parameters.func = function;
    parameters.gridDim = dim3(blocks_for(COUNT, BLOCK));
    parameters.blockDim = dim3(BLOCK);
    parameters.kernelParams = arguments;
    return parameters;
}

// 7 and what is copied, times 3 (or what `factors` has), and 1 more by the call for any kind of
// node.
void build() {
    std::vector<int> ones(COUNT, 1), numbers(COUNT), found(COUNT);
    for (int i = 0; i < COUNT; i++)
        numbers[i] = i;
    Buffer<int> values(COUNT), more(COUNT), one(ones);
    size_t bytes = COUNT * sizeof(int);
    int factors[] = {3, 5}, count = COUNT;
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));

    cudaGraphNode_t filled, copied, multiplier, added, scaled, last, read;
    cudaMemsetParams fill = {};
    fill.dst = values.data;
    fill.value = 7;
    fill.elementSize = 4;
    fill.width = COUNT;
    fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(numbers.data(), bytes, COUNT, 1);
    copy.dstPtr = make_cudaPitchedPtr(more.data, bytes, COUNT, 1);
    copy.extent = make_cudaExtent(bytes, 1, 1);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaGraphAddMemcpyNode(&copied, graph, nullptr, 0, &copy));
    CHECK(cudaGraphAddMemcpyNodeToSymbol(&multiplier, graph, nullptr, 0, factor, &factors[0],
                                         sizeof factor, 0, cudaMemcpyHostToDevice));
    void *adds[] = {(void *)&values.data, (void *)&more.data, &count};
    void *scales[] = {(void *)&values.data, &count};
    void *ends[] = {(void *)&values.data, (void *)&one.data, &count};
    cudaKernelNodeParams parameters = kernel((void *)add, adds);
    cudaGraphNode_t before_add[] = {filled, copied};
    CHECK(cudaGraphAddKernelNode(&added, graph, before_add, 2, &parameters));
    parameters = kernel((void *)scale, scales);
    cudaGraphNode_t before_scale[] = {added, multiplier};
    CHECK(cudaGraphAddKernelNode(&scaled, graph, before_scale, 2, &parameters));
    cudaGraphNodeParams any = {};
    any.type = cudaGraphNodeTypeKernel;
    any.kernel.func = (void *)add;
    any.kernel.gridDim.x = blocks_for(COUNT, BLOCK);
    any.kernel.gridDim.y = any.kernel.gridDim.z = 1;
    any.kernel.blockDim.x = BLOCK;
    any.kernel.blockDim.y = any.kernel.blockDim.z = 1;
    any.kernel.kernelParams = ends;
    CHECK(ADD_NODE(&last, graph, &scaled, nullptr, 1, &any));
    CHECK(cudaGraphAddMemcpyNode1D(&read, graph, &last, 1, found.data(), values.data, bytes,
                                   cudaMemcpyDeviceToHost));

    cudaKernelNodeParams known;
    CHECK(cudaGraphKernelNodeGetParams(scaled, &known));
    verify(known.func == (void *)scale && known.blockDim.x == BLOCK, "kernel of a node", 0);
    cudaMemsetParams known_fill;
    CHECK(cudaGraphMemsetNodeGetParams(filled, &known_fill));
    verify(known_fill.dst == values.data && known_fill.value == 7, "fill of a node", 0);
    cudaMemcpy3DParms known_copy;
    CHECK(cudaGraphMemcpyNodeGetParams(copied, &known_copy));
    verify(known_copy.srcPtr.ptr == numbers.data() && known_copy.dstPtr.ptr == more.data &&
               known_copy.extent.width == bytes,
           "copy of a node", 0);

    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    auto run = [&](const char *what, auto wanted) {
        CHECK(cudaGraphLaunch(executable, 0));
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < COUNT; i++)
            verify(found[i] == wanted(i), what, i);
    };
    run("sum", [](int i) { return (7 + i) * 3 + 1; });
    fill.value = 2;
    CHECK(cudaGraphExecMemsetNodeSetParams(executable, filled, &fill));
    CHECK(cudaGraphExecMemcpyNodeSetParamsToSymbol(executable, multiplier, factor, &factors[1],
                                                   sizeof factor, 0, cudaMemcpyHostToDevice));
    run("sum after a change", [](int i) { return (2 + i) * 5 + 1; });
    parameters = kernel((void *)add, ends);
    CHECK(cudaGraphExecKernelNodeSetParams(executable, added, &parameters));
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(executable, read, found.data(), values.data, bytes,
                                             cudaMemcpyDeviceToHost));
    run("sum with another kernel", [](int) { return (2 + 1) * 5 + 1; });
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
}

// A fill in the graph of a condition, both by the call for any kind of node.
void fill_on_condition() {
    Buffer<int> values(COUNT);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphConditionalHandle handle;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams condition = {}, fill = {};
    condition.type = cudaGraphNodeTypeConditional;
    condition.conditional.handle = handle;
    condition.conditional.type = cudaGraphCondTypeIf;
    condition.conditional.size = 1;
    CHECK(ADD_NODE(&node, graph, nullptr, nullptr, 0, &condition));
    fill.type = cudaGraphNodeTypeMemset;
    fill.memset.dst = values.data;
    fill.memset.value = 9;
    fill.memset.elementSize = 4;
    fill.memset.width = COUNT;
    fill.memset.height = 1;
    cudaGraph_t body = condition.conditional.phGraph_out[0];
    CHECK(ADD_NODE(&node, body, nullptr, nullptr, 0, &fill));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, 0));
    CHECK(cudaDeviceSynchronize());
    verify(values.read() == std::vector<int>(COUNT, 9), "fill on a condition", 0);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
}

void find_functions() {
    int (*version)(int *) = nullptr, known = 0, runtime;
    cudaDriverEntryPointQueryResult status;
    CHECK(cudaGetDriverEntryPointByVersion("cuDriverGetVersion", (void **)&version, 12000,
                                           cudaEnableDefault, &status));
    verify(status == cudaDriverEntryPointSuccess && version(&known) == 0, "function", status);
    CHECK(cudaDriverGetVersion(&runtime));
    verify(known == runtime, "version", known);
    void *none = &known;
    CHECK(cudaGetDriverEntryPointByVersion("cuNothing", &none, 12000, cudaEnableDefault, &status));
    verify(status == cudaDriverEntryPointSymbolNotFound && none == nullptr, "no function", status);
}

// Several copies at once, and one of planes with a device on each side.
void copy_batches() {
    std::vector<int> a(COUNT, 4), b(COUNT, 5), c(COUNT);
    Buffer<int> first(a), second(b), third(COUNT);
    size_t bytes = COUNT * sizeof(int);
    cudaMemcpy3DPeerParms planes = {};
    planes.srcPtr = make_cudaPitchedPtr(first.data, bytes, COUNT, 1);
    planes.dstPtr = make_cudaPitchedPtr(third.data, bytes, COUNT, 1);
    planes.extent = make_cudaExtent(bytes, 1, 1);
    CHECK(cudaMemcpy3DPeer(&planes));
    CHECK(cudaDeviceSynchronize());
    verify(third.read() == a, "copy of planes", 0);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    void *to[] = {third.data, c.data()};
    const void *from[] = {second.data, first.data};
    size_t sizes[] = {bytes, bytes}, begins[] = {0};
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
#if CUDART_VERSION < 13000
    size_t failed;
    CHECK(cudaMemcpyBatchAsync(to, (void **)from, sizes, 2, &attributes, begins, 1, &failed,
                               stream));
#else
    CHECK(cudaMemcpyBatchAsync(to, from, sizes, 2, &attributes, begins, 1, stream));
#endif
    CHECK(cudaStreamSynchronize(stream));
    verify(third.read() == b && c == a, "batch of copies", 0);
    CHECK(cudaStreamDestroy(stream));
}

int main() {
    build();
    fill_on_condition();
    find_functions();
    copy_batches();
    size_t offset, bytes;
    CHECK(cudaFuncGetParamInfo((const void *)add, 2, &offset, &bytes));
    verify(offset == 16 && bytes == 4, "parameter", offset);
    printf("nodes: right\n");
}
