// Double precision: fused multiply-add in Horner's scheme, division, square root and conversions.
extern "C" __global__ void double_math(const double *x, double *y, long long *whole, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double value = x[i];
    double sum = 1.0;
    for (int term = 12; term > 0; term--)
        sum = fma(sum, value / double(term), 1.0);
    double root = sqrt(fabs(sum) + 1.0);
    y[i] = root / (value * value + 3.0) - double(float(value));
    whole[i] = __double2ll_rd(sum * 1000.0) ^ __double2ll_ru(value * 1000.0);
}
