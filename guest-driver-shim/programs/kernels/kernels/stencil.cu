// One step of the 5-point heat stencil; the border is copied.
extern "C" __global__ void stencil(const float *from, float *to, unsigned width, unsigned height, float rate)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    unsigned i = y * width + x;
    float here = from[i];
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        to[i] = here;
        return;
    }
    float around = from[i - 1] + from[i + 1] + from[i - width] + from[i + width];
    to[i] = here + rate * (around - 4.0f * here);
}
