// Acceleration (by the approximate reciprocal square root) and potential (by the exact square root and
// division) of each body in the field of all, with bodies staged in shared memory.
extern "C" __global__ void nbody(const float4 *bodies, float4 *accelerations, float *potentials,
                                 unsigned n)
{
    __shared__ float4 staged[128];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = bodies[i];
    float ax = 0.0f, ay = 0.0f, az = 0.0f, potential = 0.0f;
    for (unsigned first = 0; first < n; first += 128) {
        staged[threadIdx.x] = bodies[first + threadIdx.x];
        __syncthreads();
        for (unsigned j = 0; j < 128; j++) {
            float4 other = staged[j];
            float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            float square = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f)));
            float inverse = rsqrtf(square);
            float pull = other.w * inverse * inverse * inverse;
            ax = fmaf(dx, pull, ax);
            ay = fmaf(dy, pull, ay);
            az = fmaf(dz, pull, az);
            potential -= other.w / sqrtf(square);
        }
        __syncthreads();
    }
    accelerations[i] = make_float4(ax, ay, az, 0.0f);
    potentials[i] = potential;
}
