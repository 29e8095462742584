extern "C" __global__ void report(int *out, double d, const char *text) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int n = printf("%d: %5.2f|%-6s|%+08.3e|%#x|%c|%lld|%%|%*d\n", i, d * i, text, d, i + 255, 'a' + i,
                   (long long)i << 40, 4, i);
    out[i] = n;
}
