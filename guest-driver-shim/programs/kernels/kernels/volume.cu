// A grid and blocks of three dimensions, with loads and stores of four words and of two.
extern "C" __global__ void volume(const uint4 *from, uint4 *to, ulonglong2 *sums)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    unsigned width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y, depth = gridDim.z * blockDim.z;
    uint4 value = from[(z * height + y) * width + x];
    unsigned turned = (x * depth + z) * height + y;
    to[turned] = make_uint4(value.w + x, value.x ^ y, value.y - z, value.z * 3);
    sums[turned] = make_ulonglong2(static_cast<unsigned long long>(value.x) + value.y,
                                   static_cast<unsigned long long>(value.z) * value.w);
}
