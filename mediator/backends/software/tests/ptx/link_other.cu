// The half that link_main.cu asks for.
__device__ int offset = 1000;
__constant__ int factors[4] = {1, 10, 100, 1000};
static __device__ int count = 5;
__device__ int twice(int value);
static __device__ __noinline__ int local(int value) { return value - count; }
__device__ int scale(int value, int index) { return twice(local(value)) * factors[index]; }
