// Elementary functions by the approximate instructions and by the library's own series over them.
extern "C" __global__ void elementary(const float *x, float4 *fast, float4 *library, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float value = x[i];
    fast[i] = make_float4(__sinf(value), __cosf(value), __expf(value), __logf(value + 4.0f));
    library[i] = make_float4(sinf(value), tanhf(value), expf(value), logf(value + 4.0f));
}
