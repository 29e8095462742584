// LU decomposition without pivots: two kernels for each column, recorded once in a graph.

#include "program.h"

constexpr int SIZE = 64;

__global__ void divide(float *matrix, int size, int column) {
    int row = column + 1 + blockIdx.x * blockDim.x + threadIdx.x;
    if (row < size)
        matrix[row * size + column] /= matrix[column * size + column];
}

__global__ void eliminate(float *matrix, int size, int column) {
    int row = column + 1 + blockIdx.y * blockDim.y + threadIdx.y;
    int at = column + 1 + blockIdx.x * blockDim.x + threadIdx.x;
    if (row < size && at < size)
        matrix[row * size + at] -= matrix[row * size + column] * matrix[column * size + at];
}

void run() {
    std::vector<float> wanted(SIZE * SIZE);
    Random random;
    for (int i = 0; i < SIZE * SIZE; i++)
        wanted[i] = random.fraction() + (i % (SIZE + 1) == 0 ? SIZE : 0);
    Buffer<float> matrix(wanted);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int column = 0; column < SIZE - 1; column++) {
        divide<<<1, SIZE, 0, stream>>>(matrix.data, SIZE, column);
        eliminate<<<dim3(4, 4), dim3(16, 16), 0, stream>>>(matrix.data, SIZE, column);
    }
    CHECK_LAUNCH();
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t nodes;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    verify(nodes == 2 * (SIZE - 1), "number of nodes", nodes);
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphUpload(executable, stream));
    Measured measured;
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    measured.end();
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));

    for (int column = 0; column < SIZE - 1; column++)
        for (int row = column + 1; row < SIZE; row++) {
            float &factor = wanted[row * SIZE + column];
            factor /= wanted[column * SIZE + column];
            for (int at = column + 1; at < SIZE; at++)
                wanted[row * SIZE + at] -= factor * wanted[column * SIZE + at];
        }
    verify_near(matrix.read(), wanted, 1e-3f, "factor");
}

int main() { return run_twice("lu", run); }
