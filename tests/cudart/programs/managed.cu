// Managed variables: the host and kernels read and write the same.

#include <cstring>

#include "program.h"

struct Node {
    int value;
    Node *next;
};

__managed__ int counter = 5;
__managed__ float table[8] = {1, 2, 3};
__managed__ double half = 0.5;
__managed__ Node head = {3, nullptr};
__managed__ int4 four;
static __managed__ unsigned long long bins[256];
__device__ int plain = 7;

namespace inner {
template <typename T> struct Pair {
    T first, second;
};
__managed__ Pair<short> pair = {11, 12};
} // namespace inner

__global__ void scale(int index) {
    table[threadIdx.x] = table[threadIdx.x] * 2 + (float)half + plain;
    if (threadIdx.x == 0) {
        four = make_int4(index, inner::pair.first, inner::pair.second, counter);
        inner::pair.second = 13;
        half += 1;
    }
}

__global__ void count() { atomicAdd(&counter, 1); }

// Follows a list that the host has made, and adds a node at its end.
__global__ void follow(Node *last, int *sum) {
    Node *at = &head;
    for (*sum = 0; at; at = at->next) {
        *sum += at->value;
        if (!at->next) {
            at->next = last;
            last = nullptr;
        }
    }
}

__global__ void sort_into_bins(const unsigned char *data, int size, int first) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
        if (data[i] % 2 == first)
            atomicAdd(&bins[data[i]], 1ull);
}

void initial() {
    verify(counter == 5 && half == 0.5 && head.value == 3 && !head.next, "scalars", 0);
    for (int i = 0; i < 8; i++)
        verify(table[i] == (i < 3 ? i + 1 : 0), "table", i);
    for (int i = 0; i < 256; i++)
        verify(bins[i] == 0, "bins", i);
    verify(inner::pair.first == 11 && inner::pair.second == 12 && four.x == 0, "structures", 0);
}

void kernels() {
    table[7] = 100;
    scale<<<1, 8>>>(42);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 8; i++) {
        float before = i < 3 ? i + 1 : i == 7 ? 100 : 0;
        verify(table[i] == before * 2 + 7.5f || table[i] == before * 2 + 8.5f, "scaled", i);
    }
    verify(half == 1.5 && inner::pair.second == 13, "written by the kernel", 0);
    verify(four.x == 42 && four.y == 11 && four.z == 12 && four.w == 5, "four", 0);
    count<<<4, 64>>>();
    CHECK(cudaDeviceSynchronize());
    verify(counter == 5 + 256, "counter", counter);
    counter = 1;
    count<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    verify(counter == 2, "counter again", counter);
}

void list() {
    Node *nodes;
    int *sum;
    CHECK(cudaMallocManaged(&nodes, 2 * sizeof(Node)));
    CHECK(cudaMallocManaged(&sum, sizeof *sum));
    nodes[0] = {10, nullptr};
    nodes[1] = {100, nullptr};
    head.next = &nodes[0];
    follow<<<1, 1>>>(&nodes[1], sum);
    CHECK(cudaDeviceSynchronize());
    verify(nodes[0].next == &nodes[1] && *sum == 113, "list", *sum);
    CHECK(cudaFree(nodes));
    CHECK(cudaFree(sum));
}

void symbols() {
    void *address;
    size_t size;
    CHECK(cudaGetSymbolAddress(&address, table));
    CHECK(cudaGetSymbolSize(&size, table));
    verify(address == table && size == sizeof table, "symbol", size);
    CHECK(cudaGetSymbolSize(&size, counter));
    verify(size == sizeof counter, "size", size);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, &table[2]));
    verify(attributes.type == cudaMemoryTypeManaged, "type", attributes.type);
    verify(attributes.devicePointer == &table[2], "pointer of the device", 0);
    verify(attributes.hostPointer == &table[2], "pointer of the host", 0);
    int value = 77;
    // Copies of pageable memory may still be under way when the call returns.
    CHECK(cudaMemcpyToSymbol(counter, &value, sizeof value));
    CHECK(cudaDeviceSynchronize());
    verify(counter == 77, "copied to the symbol", counter);
    counter = 78;
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    verify(value == 78, "copied from the symbol", value);
    const float two[2] = {20, 30};
    CHECK(cudaMemcpyToSymbol(table, two, sizeof two, 2 * sizeof(float)));
    CHECK(cudaDeviceSynchronize());
    verify(table[2] == 20 && table[3] == 30, "copied to a part", 0);
    CHECK(cudaMemset(&four, 0, sizeof four));
    CHECK(cudaDeviceSynchronize());
    verify(four.x == 0 && four.w == 0, "set", 0);
    CHECK(cudaMemcpyFromSymbol(&value, plain, sizeof value));
    verify(value == 7, "a variable that is not managed", value);
}

void streams() {
    const int size = 100000;
    Random random;
    std::vector<unsigned char> data(size);
    std::vector<unsigned long long> wanted(256);
    for (auto &it : data)
        wanted[it = (unsigned char)random.next()]++;
    Buffer<unsigned char> given(data);
    cudaStream_t both[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cudaStreamCreateWithFlags(&both[i], cudaStreamNonBlocking));
        sort_into_bins<<<8, 128, 0, both[i]>>>(given.data, size, i);
        CHECK_LAUNCH();
    }
    for (cudaStream_t stream : both) {
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamDestroy(stream));
    }
    for (int i = 0; i < 256; i++)
        verify(bins[i] == wanted[i], "bins", i);
}

int main() {
    initial();
    kernels();
    list();
    symbols();
    streams();
    printf("managed: right\n");
}
