// Fourier transform of radix 2, a kernel for each stage, there and back again.

#include "program.h"

constexpr int LOG = 10, SIZE = 1 << LOG;

__global__ void reverse(const float2 *from, float2 *to) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    to[__brev(i) >> (32 - LOG)] = from[i];
}

__global__ void stage(float2 *values, int half, float sign) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int place = i % half, low = (i / half) * 2 * half + place;
    float sine, cosine;
    sincospif(sign * place / half, &sine, &cosine);
    float2 a = values[low], b = values[low + half];
    float2 turned = {b.x * cosine - b.y * sine, b.x * sine + b.y * cosine};
    values[low] = {a.x + turned.x, a.y + turned.y};
    values[low + half] = {a.x - turned.x, a.y - turned.y};
}

void transform(const Buffer<float2> &from, Buffer<float2> &to, float sign) {
    reverse<<<SIZE / 256, 256>>>(from.data, to.data);
    for (int half = 1; half < SIZE; half *= 2)
        stage<<<SIZE / 2 / 256, 256>>>(to.data, half, sign);
    CHECK_LAUNCH();
}

void run() {
    std::vector<float2> signal(SIZE);
    Random random;
    for (float2 &value : signal)
        value = {random.fraction() - 0.5f, random.fraction() - 0.5f};
    Buffer<float2> from(signal), to(SIZE), back(SIZE);
    Measured measured;
    transform(from, to, -1);
    transform(to, back, 1);
    measured.end();
    std::vector<float2> found = to.read(), again = back.read();
    for (int k = 0; k < SIZE; k += 37) {
        double real = 0, imaginary = 0;
        for (int i = 0; i < SIZE; i++) {
            double angle = -2 * M_PI * ((long)i * k % SIZE) / SIZE;
            real += signal[i].x * std::cos(angle) - signal[i].y * std::sin(angle);
            imaginary += signal[i].x * std::sin(angle) + signal[i].y * std::cos(angle);
        }
        verify(std::fabs(found[k].x - real) < 1e-3 && std::fabs(found[k].y - imaginary) < 1e-3,
               "frequency", k);
    }
    for (int i = 0; i < SIZE; i++)
        verify(std::fabs(again[i].x / SIZE - signal[i].x) < 1e-4 &&
                   std::fabs(again[i].y / SIZE - signal[i].y) < 1e-4,
               "sample", i);
}

int main() { return run_twice("fft", run); }
