// What fails must say so, by the error of NVIDIA's runtime, and leave the device usable.

#include <cstring>
#include <thread>

#include <unistd.h>

#include "program.h"

__global__ void nothing() {}

__global__ void store(int *where) { *where = 1; }

// A kernel of no fat binary.
void unknown() {}

// Grids and blocks that no device has, in all ways to launch. CUDA 12 has an error for them.
void shapes() {
#if CUDART_VERSION < 13000
    const cudaError_t WRONG = cudaErrorInvalidConfiguration;
#else
    const cudaError_t WRONG = cudaErrorInvalidValue;
#endif
    const struct {
        dim3 grid, block;
    } all[] = {
        {dim3(0, 1, 1), 1},     {dim3(1, 0, 1), 1},      {dim3(1, 1, 0), 1},
        {1, dim3(0, 1, 1)},     {1, dim3(1, 0, 1)},      {1, dim3(1, 1, 0)},
        {1, 1025},              {1, dim3(1, 1025)},      {1, dim3(1, 1, 65)},
        {1, dim3(32, 32, 2)},   {dim3(1, 65536), 1},     {dim3(1, 1, 65536), 1},
        {dim3(0x80000000u), 1}, {dim3(0xffffffffu), 1},
    };
    const void *function = (const void *)nothing;
    for (const auto &it : all) {
        nothing<<<it.grid, it.block>>>();
        FAILS(cudaPeekAtLastError(), WRONG);
        FAILS(cudaLaunchKernel(function, it.grid, it.block, nullptr, 0, 0), WRONG);
        FAILS(cudaLaunchCooperativeKernel(function, it.grid, it.block, nullptr, 0, 0), WRONG);
        cudaLaunchConfig_t configuration = {};
        configuration.gridDim = it.grid;
        configuration.blockDim = it.block;
        FAILS(cudaLaunchKernelExC(&configuration, function, nullptr), WRONG);
        // That comes first.
        FAILS(cudaLaunchKernel((const void *)unknown, it.grid, it.block, nullptr, 0, 0),
              cudaErrorInvalidResourceHandle);
        // Graphs have one error in both.
        cudaGraph_t graph;
        cudaGraphNode_t node;
        cudaKernelNodeParams parameters = {};
        parameters.func = (void *)nothing;
        parameters.gridDim = it.grid;
        parameters.blockDim = it.block;
        CHECK(cudaGraphCreate(&graph, 0));
        FAILS(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters),
              cudaErrorInvalidValue);
        CHECK(cudaGraphDestroy(graph));
    }
    // Shared memory is no shape.
    nothing<<<1, 1, 1 << 20>>>();
    FAILS(cudaPeekAtLastError(), cudaErrorInvalidValue);
    nothing<<<1, 2048, 1 << 20>>>();
    FAILS(cudaPeekAtLastError(), WRONG);
}

int main() {
    int count, device;
    CHECK(cudaGetDeviceCount(&count));
    FAILS(cudaSetDevice(count), cudaErrorInvalidDevice);
    CHECK(cudaGetDevice(&device));
    verify(device == 0, "device", device);

    shapes();
    int x, *data, *none = &x;
    FAILS(cudaMemcpyToSymbol((const void *)&x, &x, sizeof x), cudaErrorInvalidSymbol);
    CHECK(cudaMalloc(&data, 1024));
    FAILS(cudaMemcpy(data, &x, sizeof x, (cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    FAILS(cudaMemcpy2D(data, 8, &x, 16, 16, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    FAILS(cudaMalloc(&none, (size_t)1 << 60), cudaErrorMemoryAllocation);
    verify(none == nullptr, "pointer of an allocation that failed", 0);
    CHECK(cudaFree(data));
    FAILS(cudaFree(data), cudaErrorInvalidValue);

    // Work that is under way is no error.
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaLaunchHostFunc(stream, [](void *) { usleep(200000); }, nullptr));
    verify(cudaStreamQuery(stream) == cudaErrorNotReady, "stream under way", 0);
    verify(cudaGetLastError() == cudaSuccess, "no error", 0);
    CHECK(cudaStreamDestroy(stream));

    // A kernel by its handle.
    cudaKernel_t kernel;
    CHECK(cudaGetKernel(&kernel, (const void *)nothing));
    CHECK(cudaLaunchKernel((const void *)kernel, 1, 1, nullptr, 0, 0));
    CHECK(cudaDeviceSynchronize());

    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, &x));
    verify(attributes.type == cudaMemoryTypeUnregistered, "type of memory", attributes.type);
    verify(strcmp(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice") == 0, "name", 0);

    // A thread needs no context to ask whose memory it is.
    CHECK(cudaMalloc(&data, 1024));
    std::thread([&] {
        CHECK(cudaPointerGetAttributes(&attributes, data));
        verify(attributes.type == cudaMemoryTypeDevice, "type of memory", attributes.type);
    }).join();

    // Everything of the device is gone, and it can be used again.
    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc(&data, 1024));
    store<<<1, 1>>>(data);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&x, data, sizeof x, cudaMemcpyDeviceToHost));
    verify(x == 1, "stored value", x);

    // A fault stays until the process ends.
    store<<<1, 1>>>((int *)64);
    CHECK_LAUNCH();
    cudaError_t fault = cudaDeviceSynchronize();
    verify(fault == cudaErrorIllegalAddress, "fault", fault);
    verify(cudaMalloc(&data, 16) == fault, "fault that stays", 0);
    printf("errors: right\n");
}
