// Half of a program: the other half is link_other.cu.
static __device__ int count;
extern __device__ int offset;
extern __constant__ int factors[4];
__device__ int scale(int value, int index);
__device__ __noinline__ int twice(int value) { return value * 2; }
static __device__ __noinline__ int local(int value) { count += 1; return value + 1; }
extern "C" __global__ void combine(int *out, const int *in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = scale(local(in[i]), i & 3) + offset;
}
