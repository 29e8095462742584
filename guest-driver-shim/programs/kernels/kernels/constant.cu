// A 3 x 3 filter with weights in constant memory, chosen per thread from a table in constant memory,
// and a table in the module's global memory that is read and counted in.
__constant__ float weights[4][9] = {
    { 0, 0, 0, 0, 1, 0, 0, 0, 0 },
    { 0.0625f, 0.125f, 0.0625f, 0.125f, 0.25f, 0.125f, 0.0625f, 0.125f, 0.0625f },
    { -1, 0, 1, -2, 0, 2, -1, 0, 1 },
    { 0, -1, 0, -1, 5, -1, 0, -1, 0 },
};
__device__ unsigned salt[8] = { 3, 1, 4, 1, 5, 9, 2, 6 };
__device__ unsigned visits;

extern "C" __global__ void constant(const float *from, float *to, unsigned *salted, unsigned width, unsigned height)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    const float *weight = weights[(x ^ y) & 3];
    float sum = 0.0f;
    for (int dy = -1; dy <= 1; dy++) {
        for (int dx = -1; dx <= 1; dx++) {
            int column = min(max(int(x) + dx, 0), int(width) - 1);
            int row = min(max(int(y) + dy, 0), int(height) - 1);
            sum = fmaf(*weight++, from[row * width + column], sum);
        }
    }
    to[y * width + x] = sum;
    atomicAdd(&visits, 1u);
    salted[y * width + x] = salt[x & 7] * 1000u + salt[y & 7];
}
