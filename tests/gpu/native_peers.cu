// What stores, loads and copies to memory of another GPU cost without Causeway: the kernels and sizes of the guest
// `peers`, for comparison in the same run.
//
//     nvcc -O2 -o native_peers tests/gpu/native_peers.cu -lcuda
//     ./native_peers MIB
//
// GPU 0 has the memory, and GPU 1 uses it, as in the guest. Prints GB/s of each pass, timed by the host.

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_runtime.h>

#include "../../guest-driver-shim/programs/kernels/kernels/peers.cu"

static void check(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "%s: %d\n", what, result);
        exit(1);
    }
}

static CUdeviceptr memory_of(int device, size_t bytes, int user)
{
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    check(cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
    check(cuMemAddressReserve(&address, bytes, 0, 0, 0), "cuMemAddressReserve");
    check(cuMemMap(address, bytes, 0, handle, 0), "cuMemMap");
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, user}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    check(cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
    return address;
}

template <typename Work> static void measure(const char *name, size_t bytes, Work work)
{
    for (int pass = 0; pass < 4; pass++) {
        auto begun = std::chrono::steady_clock::now();
        work();
        check(cudaStreamSynchronize(0), "cudaStreamSynchronize");
        double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        printf("%-28s %8.1f GB/s\n", name, bytes / took / 1e9);
    }
}

int main(int count, char **words)
{
    size_t bytes = (count > 1 ? strtoul(words[1], nullptr, 10) : 1024) << 20;
    check(cudaSetDevice(1), "cudaSetDevice");
    check(cudaFree(0), "cudaFree");
    CUdeviceptr theirs = memory_of(0, bytes, 1), ours = memory_of(1, bytes, 1);
    word *wrong, *memory = (word *)theirs;
    check(cudaMalloc(&wrong, sizeof(word)), "cudaMalloc");
    store_pattern<<<528, 256>>>(memory, bytes / 8, 0);
    check(cudaStreamSynchronize(0), "a first kernel");
    measure("loads of a peer's memory", bytes, [&] { check_pattern<<<528, 256>>>(memory, bytes / 8, 0, wrong); });
    measure("copies to a peer's memory", bytes, [&] { check(cuMemcpyDtoDAsync(theirs, ours, bytes, 0), "a copy"); });
    measure("copies of a peer's memory", bytes, [&] { check(cuMemcpyDtoDAsync(ours, theirs, bytes, 0), "a copy"); });
    measure("stores to a peer's memory", bytes, [&] { store_pattern<<<528, 256>>>(memory, bytes / 8, ~0ull); });
    return 0;
}
