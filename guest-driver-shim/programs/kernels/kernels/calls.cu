// Calls of functions that are not inlined, with arrays in local memory passed by pointer; and recursion.
__device__ __noinline__ void sort(unsigned *values, int count)
{
    for (int i = 1; i < count; i++) {
        unsigned value = values[i];
        int j = i;
        while (j > 0 && values[j - 1] > value) {
            values[j] = values[j - 1];
            j--;
        }
        values[j] = value;
    }
}

__device__ __noinline__ unsigned pick(const unsigned *values, int index)
{
    return values[index & 15];
}

__device__ __noinline__ unsigned fibonacci(unsigned n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

extern "C" __global__ void calls(const unsigned *input, unsigned *output)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned values[16];
    for (int k = 0; k < 16; k++)
        values[k] = input[i] * (2 * k + 1) + k * 0x9e3779b9u;
    sort(values, 16);
    unsigned sum = 0;
    for (int k = 0; k < 8; k++)
        sum = sum * 31 + pick(values, input[i] + 3 * k);
    output[i] = sum;
}

extern "C" __global__ void recursion(const unsigned *input, unsigned *output)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    output[i] = fibonacci(input[i] & 7);
}
