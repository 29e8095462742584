// Half precision: scalar and paired arithmetic, comparison and conversion. Where a product feeds a sum, the
// forms with `_rn` keep the assembler from fusing the two.
#include <cuda_fp16.h>

extern "C" __global__ void half_math(const __half *x, const __half *y, __half *scalar, __half2 *paired, float *widened)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    __half a = x[i], b = y[i];
    __half sum = a;
    for (int step = 0; step < 8; step++) {
        sum = __hfma(sum, b, a);
        sum = __hsub_rn(__hmul_rn(sum, __float2half_rn(0.25f)), b);
    }
    scalar[i] = __hlt(sum, b) ? __hadd_rn(sum, b) : __hneg(sum);
    widened[i] = __half2float(sum) + __half2float(b);
    __half2 pair = __halves2half2(a, b);
    __half2 other = __halves2half2(b, sum);
    paired[i] = __hfma2(pair, other, __hadd2_rn(pair, other));
}
