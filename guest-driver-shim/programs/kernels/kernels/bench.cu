// Kernels for measuring: what is measured is everything around them.

typedef unsigned long long word;

// Nothing at all.
extern "C" __global__ void nothing()
{
}

// One thread that lives until it is told to end: it waits until *mailbox has become something new, and says the
// same in *answer. All-ones ends it, and is answered, too.
extern "C" __global__ void echo(const volatile word *mailbox, volatile word *answer)
{
    word seen = 0;
    while (seen != ~0ull) {
        word now = *mailbox;
        if (now != seen) {
            seen = now;
            *answer = now;
            __threadfence_system();
        }
    }
}

// Sets the bit of the multiprocessor that each block runs on, in a map of 32 words, after it has been busy for so
// many steps: long enough for the other blocks to find the other multiprocessors.
extern "C" __global__ void multiprocessors(unsigned *map, unsigned steps)
{
    unsigned number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    unsigned value = number;
#pragma unroll 1
    for (unsigned step = 0; step < steps; step++)
        value = value * 1664525u + 1013904223u;
    // The second half is never true; it keeps the loop.
    if (threadIdx.x == 0 || (value == number && steps == 0xffffffffu))
        atomicOr(&map[(number / 32) % 32], 1u << (number % 32));
}

// Counts the 64-bit words of `memory` that are not zero.
extern "C" __global__ void residue(const word *memory, word words, word *count)
{
    word stride = (word)gridDim.x * blockDim.x;
    word found = 0;
    for (word at = (word)blockIdx.x * blockDim.x + threadIdx.x; at < words; at += stride)
        found += memory[at] != 0;
    if (found != 0)
        atomicAdd(count, found);
}
