// A matrix product in tiles, for two types by one template, launched by the runtime's function.

#include "program.h"

constexpr int SIZE = 96, TILE = 16;

template <typename T> __global__ void multiply(const T *a, const T *b, T *c, int size) {
    __shared__ T left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    T sum = 0;
    for (int first = 0; first < size; first += TILE) {
        left[threadIdx.y][threadIdx.x] = a[row * size + first + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(first + threadIdx.y) * size + column];
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[row * size + column] = sum;
}

template <typename T> void product(Random &random) {
    std::vector<T> a(SIZE * SIZE), b(SIZE * SIZE);
    // Whole numbers: every order of the sum gives the same.
    for (int i = 0; i < SIZE * SIZE; i++) {
        a[i] = (T)(random.next() % 16);
        b[i] = (T)(random.next() % 16);
    }
    Buffer<T> first(a), second(b), result(SIZE * SIZE);
    int size = SIZE;
    void *arguments[] = {(void *)&first.data, (void *)&second.data, (void *)&result.data, &size};
    Measured measured;
    CHECK(cudaLaunchKernel((const void *)multiply<T>, dim3(SIZE / TILE, SIZE / TILE),
                           dim3(TILE, TILE), arguments, 0, 0));
    measured.end();
    std::vector<T> found = result.read();
    for (int row = 0; row < SIZE; row++)
        for (int column = 0; column < SIZE; column++) {
            T sum = 0;
            for (int i = 0; i < SIZE; i++)
                sum += a[row * SIZE + i] * b[i * SIZE + column];
            verify(found[row * SIZE + column] == sum, "element", row * SIZE + column);
        }
}

void run() {
    Random random;
    product<float>(random);
    product<double>(random);
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, multiply<float>));
    verify(attributes.sharedSizeBytes == 2 * TILE * TILE * sizeof(float), "shared bytes",
           attributes.sharedSizeBytes);
}

int main() { return run_twice("matmul", run); }
