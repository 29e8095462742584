// y = a * x + y with one rounding, in a loop over the grid.
extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned n)
{
    unsigned stride = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        y[i] = fmaf(a, x[i], y[i]);
}
