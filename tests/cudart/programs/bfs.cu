// Breadth-first search, level by level: a flag in pinned memory says whether another level follows.

#include "program.h"

constexpr int NODES = 5000, DEGREE = 4;

__global__ void visit(const int *edges, int *levels, int level, int nodes, int *has_more) {
    int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= nodes || levels[node] != level)
        return;
    for (int i = 0; i < DEGREE; i++) {
        int next = edges[node * DEGREE + i];
        if (atomicCAS(&levels[next], -1, level + 1) == -1)
            *has_more = 1;
    }
}

void run() {
    std::vector<int> edges(NODES * DEGREE), wanted(NODES, -1);
    Random random;
    for (int &edge : edges)
        edge = random.next() % NODES;
    wanted[0] = 0;
    Buffer<int> graph(edges), levels(wanted);
    int *has_more, *has_more_there;
    CHECK(cudaHostAlloc(&has_more, sizeof *has_more, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&has_more_there, has_more, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int level = 0;
    Measured measured;
    do {
        *has_more = 0;
        visit<<<blocks_for(NODES, 128), 128, 0, stream>>>(graph.data, levels.data, level++, NODES,
                                                          has_more_there);
        CHECK_LAUNCH();
        CHECK(cudaStreamSynchronize(stream));
    } while (*has_more);
    measured.end();
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(has_more));

    std::vector<int> queue = {0};
    for (size_t i = 0; i < queue.size(); i++)
        for (int j = 0; j < DEGREE; j++) {
            int next = edges[queue[i] * DEGREE + j];
            if (wanted[next] == -1) {
                wanted[next] = wanted[queue[i]] + 1;
                queue.push_back(next);
            }
        }
    std::vector<int> found = levels.read();
    for (int i = 0; i < NODES; i++)
        verify(found[i] == wanted[i], "level", i);
}

int main() { return run_twice("bfs", run); }
