// Points to the nearest of some centres, in constant memory, which the host moves after each round.

#include "program.h"

constexpr int POINTS = 4096, CENTRES = 8, ROUNDS = 5;

__constant__ float2 centres[CENTRES];

__host__ __device__ int nearest(float2 point, const float2 *all) {
    int best = 0;
    float least = 1e30f;
    for (int i = 0; i < CENTRES; i++) {
        float x = point.x - all[i].x, y = point.y - all[i].y, distance = x * x + y * y;
        if (distance < least) {
            least = distance;
            best = i;
        }
    }
    return best;
}

__global__ void assign(const float2 *points, int *chosen, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        chosen[i] = nearest(points[i], centres);
}

void run() {
    std::vector<float2> points(POINTS), moved(CENTRES);
    Random random;
    for (float2 &point : points)
        point = {random.fraction(), random.fraction()};
    for (int i = 0; i < CENTRES; i++)
        moved[i] = points[i * 7];
    Buffer<float2> there(points);
    Buffer<int> chosen(POINTS);
    size_t bytes;
    CHECK(cudaGetSymbolSize(&bytes, centres));
    verify(bytes == sizeof centres, "size of the symbol", bytes);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(cudaMemcpyToSymbol(centres, moved.data(), bytes));
        Measured measured;
        assign<<<blocks_for(POINTS, 256), 256>>>(there.data, chosen.data, POINTS);
        CHECK_LAUNCH();
        measured.end();
        std::vector<int> found = chosen.read();
        std::vector<float3> sums(CENTRES, float3{0, 0, 0});
        for (int i = 0; i < POINTS; i++) {
            verify(found[i] == nearest(points[i], moved.data()), "centre", i);
            float3 &sum = sums[found[i]];
            sum = {sum.x + points[i].x, sum.y + points[i].y, sum.z + 1};
        }
        for (int i = 0; i < CENTRES; i++)
            if (sums[i].z > 0)
                moved[i] = {sums[i].x / sums[i].z, sums[i].y / sums[i].z};
    }
}

int main() { return run_twice("kmeans", run); }
