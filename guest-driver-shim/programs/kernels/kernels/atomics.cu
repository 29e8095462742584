// Atomics of every kind whose result does not depend on the order, on a few words that all threads share.
extern "C" __global__ void atomics(const unsigned *values, unsigned *words, unsigned long long *wide)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned value = values[i];
    atomicAdd(&words[0], value);
    atomicSub(&words[1], value);
    atomicAnd(&words[2], value | 0xffu);
    atomicOr(&words[3], value & 0x0f0f0f0fu);
    atomicXor(&words[4], value);
    atomicMin(&words[5], value);
    atomicMax(&words[6], value);
    atomicInc(&words[7], 999);
    atomicDec(&words[8], 999);
    if ((i & 15) == 0) {
        unsigned seen = words[9], expected;
        do {
            expected = seen;
            seen = atomicCAS(&words[9], expected, expected * (value | 1));
        } while (seen != expected);
    }
    atomicAdd(&wide[0], static_cast<unsigned long long>(value) << 16);
    atomicMax(&wide[1], static_cast<unsigned long long>(value) << 8);
    atomicXor(&wide[2], static_cast<unsigned long long>(value) * value);
    if (atomicExch(&words[16 + (i & 63)], 7u) == 0)
        atomicAdd(&words[10], 1u);
}
