// Heat in a plate: five points, in rows of a pitch that the device chooses, two planes in turn.

#include "program.h"

constexpr int WIDTH = 203, HEIGHT = 117, STEPS = 20;

__global__ void step(const float *from, float *to, size_t pitch, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    auto row = [&](int at) { return (const float *)((const char *)from + at * pitch); };
    float here = row(y)[x];
    if (x > 0 && x < width - 1 && y > 0 && y < height - 1)
        here += 0.2f * (row(y - 1)[x] + row(y + 1)[x] + row(y)[x - 1] + row(y)[x + 1] - 4 * here);
    ((float *)((char *)to + y * pitch))[x] = here;
}

void run() {
    std::vector<float> plate(WIDTH * HEIGHT);
    Random random;
    for (float &value : plate)
        value = 100 * random.fraction();
    float *planes[2];
    size_t pitch, row_bytes = WIDTH * sizeof(float);
    for (float *&plane : planes)
        CHECK(cudaMallocPitch(&plane, &pitch, row_bytes, HEIGHT));
    CHECK(cudaMemcpy2D(planes[0], pitch, plate.data(), row_bytes, row_bytes, HEIGHT,
                       cudaMemcpyHostToDevice));
    dim3 block(16, 8), grid(blocks_for(WIDTH, block.x), blocks_for(HEIGHT, block.y));
    Measured measured;
    for (int i = 0; i < STEPS; i++) {
        step<<<grid, block>>>(planes[i % 2], planes[1 - i % 2], pitch, WIDTH, HEIGHT);
        CHECK_LAUNCH();
    }
    measured.end();
    std::vector<float> found(plate.size());
    CHECK(cudaMemcpy2D(found.data(), row_bytes, planes[STEPS % 2], pitch, row_bytes, HEIGHT,
                       cudaMemcpyDeviceToHost));
    for (float *plane : planes)
        CHECK(cudaFree(plane));

    std::vector<float> next = plate;
    for (int i = 0; i < STEPS; i++, plate.swap(next))
        for (int y = 1; y < HEIGHT - 1; y++)
            for (int x = 1; x < WIDTH - 1; x++) {
                const float *here = &plate[y * WIDTH + x];
                next[y * WIDTH + x] =
                    *here + 0.2f * (here[-WIDTH] + here[WIDTH] + here[-1] + here[1] - 4 * *here);
            }
    verify_near(found, plate, 1e-4f, "temperature");
}

int main() { return run_twice("stencil", run); }
