// Votes: the values that pass a test are packed to the front of each block's part of the output, in
// order, by ballots; and each lane finds how many lanes of its warp hold the same key.
extern "C" __global__ void vote(const unsigned *values, unsigned *packed, unsigned *counts, unsigned *twins)
{
    __shared__ unsigned found[8];
    unsigned lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    unsigned value = values[i];
    bool passes = value % 3 == 0;
    unsigned ballot = __ballot_sync(0xffffffffu, passes);
    if (lane == 0)
        found[warp] = __popc(ballot);
    __syncthreads();
    unsigned before = 0;
    for (unsigned other = 0; other < warp; other++)
        before += found[other];
    if (passes)
        packed[blockIdx.x * 256 + before + __popc(ballot & ((1u << lane) - 1))] = value;
    int matching = __syncthreads_count(passes);
    if (threadIdx.x == 0)
        counts[blockIdx.x] = matching;
    unsigned same = __match_any_sync(0xffffffffu, value & 7);
    bool high = __any_sync(0xffffffffu, value > 0xf8000000u);
    bool even = __all_sync(same, (value & 7) != 5);
    twins[i] = __popc(same) | high << 8 | even << 9;
}
