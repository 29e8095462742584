// Kernels of one GPU that work on memory of another.

typedef unsigned long long word;

// What word i of the pattern is, with the bits of `mask` inverted.
static __device__ word pattern(word i, word mask)
{
    return (i * 0x9e3779b97f4a7c15ull) ^ mask;
}

// Stores the pattern.
extern "C" __global__ void store_pattern(word *memory, word words, word mask)
{
    word stride = (word)gridDim.x * blockDim.x;
    for (word i = (word)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride)
        memory[i] = pattern(i, mask);
}

// Loads the memory, and adds to *wrong how many words are not those of the pattern.
extern "C" __global__ void check_pattern(const word *memory, word words, word mask, word *wrong)
{
    word stride = (word)gridDim.x * blockDim.x;
    word found = 0;
    for (word i = (word)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride)
        found += memory[i] != pattern(i, mask);
    if (found != 0)
        atomicAdd(wrong, found);
}

// Stores 1, 2, 3 and so on to *memory, and each number to *told afterwards, until *end is not zero.
extern "C" __global__ void count_up(volatile word *memory, volatile word *told, const volatile word *end)
{
    for (word number = 1; *end == 0; number++) {
        *memory = number;
        __threadfence_system();
        *told = number;
    }
}

// Stores to each word the index of the word that is `distance` words further, from the end on to the beginning.
extern "C" __global__ void link_words(word *memory, word words, word distance)
{
    word stride = (word)gridDim.x * blockDim.x;
    for (word i = (word)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride)
        memory[i] = (i + distance) % words;
}

// Follows `steps` links from word `first` on: each load needs the result of the one before. Stores where it ends.
extern "C" __global__ void follow_links(const volatile word *memory, word first, word steps, word *end)
{
    word at = first;
    for (word step = 0; step < steps; step++)
        at = memory[at];
    *end = at;
}
