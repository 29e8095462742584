// A sparse matrix in rows (CSR) by a vector: a warp for each row, which adds up by shuffles.

#include "program.h"

constexpr int ROWS = 1000;

__global__ void multiply(const int *starts, const int *columns, const float *values,
                         const float *vector, float *result, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize, lane = threadIdx.x % warpSize;
    if (row >= rows)
        return;
    float sum = 0;
    for (int i = starts[row] + lane; i < starts[row + 1]; i += warpSize)
        sum += values[i] * vector[columns[i]];
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0)
        result[row] = sum;
}

void run() {
    std::vector<int> starts = {0}, columns;
    std::vector<float> values, vector(ROWS), wanted(ROWS);
    Random random;
    for (float &value : vector)
        value = random.fraction();
    for (int row = 0; row < ROWS; row++) {
        int count = random.next() % 100;
        for (int i = 0; i < count; i++) {
            columns.push_back(random.next() % ROWS);
            values.push_back(random.fraction());
            wanted[row] += values.back() * vector[columns.back()];
        }
        starts.push_back((int)columns.size());
    }
    Buffer<int> s(starts), c(columns);
    Buffer<float> v(values), x(vector), y(ROWS);
    Measured measured;
    multiply<<<blocks_for(ROWS * 32, 128), 128>>>(s.data, c.data, v.data, x.data, y.data, ROWS);
    CHECK_LAUNCH();
    measured.end();
    verify_near(y.read(), wanted, 1e-5f, "element");
}

int main() { return run_twice("spmv", run); }
