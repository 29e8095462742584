// Kernels that misbehave, or only take time.

// Stores to whatever address it is told.
extern "C" __global__ void wild_store(unsigned *address, unsigned value)
{
    *address = value;
}

// Loads from whatever address it is told.
extern "C" __global__ void wild_load(const volatile unsigned *address, unsigned *result)
{
    *result = *address;
}

// Ends when another party stores a word other than zero; so never, if nobody does.
extern "C" __global__ void forever(const volatile unsigned *flag)
{
    while (*flag == 0) {
    }
}

// Is busy for so many steps of a linear congruential generator, and stores the last state.
extern "C" __global__ void spin(unsigned steps, unsigned *state)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned value = state[i];
#pragma unroll 1
    for (unsigned step = 0; step < steps; step++)
        value = value * 1664525u + 1013904223u;
    state[i] = value;
}
