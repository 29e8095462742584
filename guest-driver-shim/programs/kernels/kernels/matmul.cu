// c = a * b in row-major order: a is rows x inner, b is inner x columns. Each block makes one tile of c
// and stages tiles of a and b in shared memory.
template <int TILE>
__device__ __forceinline__ void tile_product(const float *a, const float *b, float *c,
                                             unsigned rows, unsigned inner, unsigned columns)
{
    __shared__ float left[TILE][TILE];
    __shared__ float right[TILE][TILE];
    unsigned tx = threadIdx.x, ty = threadIdx.y;
    unsigned row = blockIdx.y * TILE + ty, column = blockIdx.x * TILE + tx;
    float sum = 0.0f;
    for (unsigned k = 0; k < inner; k += TILE) {
        left[ty][tx] = row < rows && k + tx < inner ? a[row * inner + k + tx] : 0.0f;
        right[ty][tx] = k + ty < inner && column < columns ? b[(k + ty) * columns + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++)
            sum = fmaf(left[ty][i], right[i][tx], sum);
        __syncthreads();
    }
    if (row < rows && column < columns)
        c[row * columns + column] = sum;
}

extern "C" __global__ void matmul_16(const float *a, const float *b, float *c,
                                     unsigned rows, unsigned inner, unsigned columns)
{
    tile_product<16>(a, b, c, rows, inner, columns);
}

extern "C" __global__ void matmul_32(const float *a, const float *b, float *c,
                                     unsigned rows, unsigned inner, unsigned columns)
{
    tile_product<32>(a, b, c, rows, inner, columns);
}
