// An integer hash that mixes with the high half of 64-bit products, funnel shifts, byte permutation,
// bit reversal and counts.
extern "C" __global__ void hash(const unsigned long long *keys, unsigned long long *digests, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long key = keys[i];
    for (unsigned round = 0; round < 8; round++) {
        unsigned long long low = key * 0x9e3779b97f4a7c15ull;
        unsigned long long high = __umul64hi(key, 0x9e3779b97f4a7c15ull);
        key = low ^ high;
        unsigned a = unsigned(key), b = unsigned(key >> 32);
        a = __funnelshift_l(a, b, round * 5 + 3);
        b = __funnelshift_r(a, b, a);
        a ^= __byte_perm(a, b, 0x2705 + (round << 4));
        b += __umulhi(a, 0x85ebca6bu) + unsigned(__mulhi(int(a), int(b)));
        a ^= __brev(b) + __popc(a) * 0x1001u + __clz(int(b)) + __ffs(int(a));
        key += (static_cast<unsigned long long>(a) << 32 | b) ^ __brevll(key >> 7);
    }
    digests[i] = key;
}
