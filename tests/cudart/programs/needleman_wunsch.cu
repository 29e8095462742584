// Alignment of two sequences: one diagonal after the other, in a block's shared memory.

#include "program.h"

constexpr int LENGTH = 200, GAP = -2;

__host__ __device__ int score(int a, int b) { return a == b ? 3 : -1; }

__host__ __device__ int best(int across, int above, int left) {
    int gap = (above > left ? above : left) + GAP;
    return across > gap ? across : gap;
}

__global__ void align(const int *first, const int *second, int *table) {
    __shared__ int letters[LENGTH];
    int row = threadIdx.x + 1, side = LENGTH + 1;
    letters[threadIdx.x] = first[threadIdx.x];
    __syncthreads();
    for (int diagonal = 2; diagonal <= 2 * LENGTH; diagonal++) {
        int column = diagonal - row;
        if (column >= 1 && column <= LENGTH) {
            int *here = table + row * side + column;
            int matched = here[-side - 1] + score(letters[row - 1], second[column - 1]);
            *here = best(matched, here[-side], here[-1]);
        }
        __syncthreads();
    }
}

void run() {
    const int side = LENGTH + 1;
    std::vector<int> first(LENGTH), second(LENGTH), wanted(side * side);
    Random random;
    for (int i = 0; i < LENGTH; i++) {
        first[i] = random.next() % 4;
        second[i] = random.next() % 4;
        wanted[i + 1] = wanted[(i + 1) * side] = (i + 1) * GAP;
    }
    Buffer<int> a(first), b(second), table(wanted);
    Measured measured;
    align<<<1, LENGTH>>>(a.data, b.data, table.data);
    CHECK_LAUNCH();
    measured.end();
    for (int row = 1; row <= LENGTH; row++)
        for (int column = 1; column <= LENGTH; column++) {
            int *here = &wanted[row * side + column];
            int matched = here[-side - 1] + score(first[row - 1], second[column - 1]);
            *here = best(matched, here[-side], here[-1]);
        }
    std::vector<int> found = table.read();
    for (int i = 0; i < side * side; i++)
        verify(found[i] == wanted[i], "score", i);
}

int main() { return run_twice("needleman_wunsch", run); }
