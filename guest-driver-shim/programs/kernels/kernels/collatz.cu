// Nested loops that diverge: each thread follows the Collatz sequences of several numbers, for as long
// as each takes, and notes the steps of all and the highest number met.
extern "C" __global__ void collatz(const unsigned *starts, unsigned *steps, unsigned long long *peaks)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned count = 0;
    unsigned long long peak = 0;
    for (unsigned k = 0; k <= (i & 3); k++) {
        unsigned long long value = starts[i] + k;
        while (value != 1) {
            if (value & 1)
                value = 3 * value + 1;
            else
                value >>= 1;
            if (value > peak)
                peak = value;
            if (++count > 5000)
                break;
        }
    }
    steps[i] = count;
    peaks[i] = peak;
}
