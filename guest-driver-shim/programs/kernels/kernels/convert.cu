// Division, remainder and conversion of every width and sign, with the roundings and clamps of each.
extern "C" __global__ void convert(const unsigned *a, const unsigned *b, const float *f, unsigned *integers,
                                   unsigned long long *wide, unsigned *rounded)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = a[i], y = b[i] | 1;
    int sx = int(x), sy = int(y >> 4) | 1;
    integers[i] = x / y ^ (x % (y >> 7 | 1)) ^ unsigned(sx / sy) ^ unsigned(sx % sy) ^ unsigned(sx >> (y & 31));
    unsigned long long large = static_cast<unsigned long long>(x) << 32 | y;
    long long slarge = static_cast<long long>(large);
    wide[i] = large / (y | 0x10000u) ^ large % (x | 1) ^ static_cast<unsigned long long>(slarge / sy)
        ^ static_cast<unsigned long long>(static_cast<short>(x)) ^ static_cast<signed char>(y);
    float v = f[i];
    unsigned clamped = unsigned(__float2int_rn(v)) + 3u * unsigned(__float2int_rz(v));
    clamped ^= 5u * unsigned(__float2int_rd(v)) + 7u * unsigned(__float2int_ru(v));
    clamped ^= __float2uint_rz(v);
    rounded[i] = clamped ^ __float_as_uint(floorf(v)) ^ __float_as_uint(__uint2float_rz(x))
        ^ __float_as_uint(__int2float_rn(sx)) ^ __float_as_uint(v / 3.0f) ^ __float_as_uint(__saturatef(v * 1e-9f));
}
