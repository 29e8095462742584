extern "C" __global__ void check(const int *in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(in[i] < 10);
}
