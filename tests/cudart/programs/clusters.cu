// Clusters: blocks that read each other's shared memory, of sizes that the launch says and of one
// that the kernel says; what the device cannot have is refused, and ends a capture. The software
// back end has clusters of one block only.

#include <cstring>

#include <cooperative_groups.h>

#include "program.h"

namespace groups = cooperative_groups;

constexpr unsigned BLOCKS = 8, THREADS = 64, COUNT = BLOCKS * THREADS;

// Each thread adds what the threads with its number in all blocks of the cluster have.
__device__ void add_up(unsigned *sums) {
    __shared__ unsigned own[THREADS];
    auto cluster = groups::this_cluster();
    own[threadIdx.x] = blockIdx.x * THREADS + threadIdx.x;
    cluster.sync();
    unsigned sum = 0;
    for (unsigned block = 0; block < cluster.num_blocks(); block++)
        sum += cluster.map_shared_rank(own, block)[threadIdx.x];
    // Shared memory ends with its block.
    cluster.sync();
    sums[blockIdx.x * THREADS + threadIdx.x] = sum;
}

__global__ void of_the_launch(unsigned *sums) { add_up(sums); }

__global__ void __cluster_dims__(2, 1, 1) of_the_kernel(unsigned *sums) { add_up(sums); }

__global__ void __cluster_dims__(1, 1, 1) of_one_block(unsigned *sums) { add_up(sums); }

template <typename Kernel>
cudaError_t launch_kernel(Kernel kernel, unsigned blocks, unsigned of_cluster, cudaStream_t stream,
                          unsigned *sums) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {of_cluster, 1, 1};
    cudaLaunchConfig_t configuration = {};
    configuration.gridDim = blocks;
    configuration.blockDim = THREADS;
    configuration.stream = stream;
    configuration.attrs = &attribute;
    configuration.numAttrs = 1;
    return cudaLaunchKernelEx(&configuration, kernel, sums);
}

cudaError_t launch(unsigned blocks, unsigned of_cluster, cudaStream_t stream, unsigned *sums) {
    return launch_kernel(of_the_launch, blocks, of_cluster, stream, sums);
}

void verify_sums(unsigned *sums, unsigned of_cluster) {
    CHECK(cudaDeviceSynchronize());
    for (unsigned at = 0; at < COUNT; at++) {
        unsigned first = at / THREADS / of_cluster * of_cluster, wanted = 0;
        for (unsigned block = first; block < first + of_cluster; block++)
            wanted += block * THREADS + at % THREADS;
        verify(sums[at] == wanted, "the sum is wrong, with blocks in a cluster:", of_cluster);
    }
    memset(sums, 0, COUNT * sizeof *sums);
}

int main() {
    unsigned *sums;
    cudaStream_t stream;
    cudaDeviceProp device;
    CHECK(cudaMallocManaged(&sums, COUNT * sizeof *sums));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaGetDeviceProperties(&device, 0));
    const bool has_clusters = strstr(device.name, "software") == nullptr;
    verify(device.clusterLaunch == has_clusters, "clusters of the device", device.clusterLaunch);
    const unsigned largest = has_clusters ? BLOCKS : 1;
    for (unsigned of_cluster = 1; of_cluster <= largest; of_cluster *= 2) {
        CHECK(launch(BLOCKS, of_cluster, stream, sums));
        verify_sums(sums, of_cluster);
    }
    of_the_kernel<<<BLOCKS, THREADS>>>(sums);
    if (has_clusters) {
        CHECK_LAUNCH();
        verify_sums(sums, 2);
        of_the_kernel<<<BLOCKS + 1, THREADS>>>(sums);
        FAILS(cudaPeekAtLastError(), cudaErrorInvalidClusterSize);
    } else {
        FAILS(cudaPeekAtLastError(), cudaErrorInvalidClusterSize);
    }
    of_one_block<<<BLOCKS, THREADS>>>(sums);
    CHECK_LAUNCH();
    verify_sums(sums, 1);
    FAILS(launch_kernel(of_one_block, BLOCKS, 2, stream, sums), cudaErrorInvalidClusterSize);
    // Not whole clusters, and more than the device has.
    const unsigned wrong[][2] = {{BLOCKS + 1, 2}, {2 * BLOCKS, 2 * BLOCKS}};
    for (auto [blocks, of_cluster] : wrong) {
        FAILS(launch(blocks, of_cluster, stream, sums), cudaErrorInvalidClusterSize);
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        FAILS(launch(blocks, of_cluster, stream, sums), cudaErrorInvalidClusterSize);
        FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(sums));
    printf("clusters: right\n");
}
