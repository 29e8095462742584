// Bodies that attract each other: tiles of positions in dynamic shared memory, two streams.

#include "program.h"

constexpr int BODIES = 512, TILE = 64, STEPS = 3;
constexpr float SOFTENING = 0.01f, STEP = 0.001f;

__global__ void attract(const float4 *bodies, float4 *forces, int count) {
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 here = bodies[i], force = {0, 0, 0, 0};
    for (int first = 0; first < count; first += blockDim.x) {
        tile[threadIdx.x] = bodies[first + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < blockDim.x; j++) {
            float x = tile[j].x - here.x, y = tile[j].y - here.y, z = tile[j].z - here.z;
            float inverse = rsqrtf(x * x + y * y + z * z + SOFTENING);
            float strength = tile[j].w * inverse * inverse * inverse;
            force.x += x * strength;
            force.y += y * strength;
            force.z += z * strength;
        }
        __syncthreads();
    }
    forces[i] = force;
}

__global__ void move(float4 *bodies, const float4 *forces) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bodies[i].x += STEP * forces[i].x;
    bodies[i].y += STEP * forces[i].y;
    bodies[i].z += STEP * forces[i].z;
}

void on_host(std::vector<float4> &bodies) {
    std::vector<float4> old = bodies;
    for (float4 &body : bodies) {
        float4 here = body;
        for (const float4 &other : old) {
            float x = other.x - here.x, y = other.y - here.y, z = other.z - here.z;
            float inverse = 1 / std::sqrt(x * x + y * y + z * z + SOFTENING);
            float strength = STEP * other.w * inverse * inverse * inverse;
            body.x += x * strength;
            body.y += y * strength;
            body.z += z * strength;
        }
    }
}

void run() {
    std::vector<float4> bodies(BODIES);
    Random random;
    for (float4 &body : bodies)
        body = {random.fraction(), random.fraction(), random.fraction(), random.fraction()};
    Buffer<float4> there(bodies), forces(BODIES);
    cudaStream_t streams[2];
    cudaEvent_t events[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
    }
    Measured measured;
    for (int i = 0; i < STEPS; i++) {
        attract<<<BODIES / TILE, TILE, TILE * sizeof(float4), streams[0]>>>(there.data,
                                                                           forces.data, BODIES);
        CHECK_LAUNCH();
        CHECK(cudaEventRecord(events[0], streams[0]));
        CHECK(cudaStreamWaitEvent(streams[1], events[0], 0));
        move<<<BODIES / TILE, TILE, 0, streams[1]>>>(there.data, forces.data);
        CHECK_LAUNCH();
        CHECK(cudaEventRecord(events[1], streams[1]));
        CHECK(cudaStreamWaitEvent(streams[0], events[1], 0));
        on_host(bodies);
    }
    measured.end();
    std::vector<float4> found = there.read();
    for (int i = 0; i < BODIES; i++)
        verify(std::fabs(found[i].x - bodies[i].x) < 1e-3f &&
                   std::fabs(found[i].y - bodies[i].y) < 1e-3f &&
                   std::fabs(found[i].z - bodies[i].z) < 1e-3f,
               "position", i);
    for (int i = 0; i < 2; i++) {
        CHECK(cudaEventDestroy(events[i]));
        CHECK(cudaStreamDestroy(streams[i]));
    }
}

int main() { return run_twice("nbody", run); }
