#!/usr/bin/env python3
"""Times whole programs, whose kernels take 100 µs and more on a GPU, on whatever driver they find.

    whole_programs.py training|inference|bodies [--small] [--repetitions 30]

`training` is a step of four layers of 4096 × 4096 with a batch of 2048, `inference` is a forward
pass of four transformer layers for 4 × 512 tokens of 2048, both by tinygrad with random weights;
`bodies` are ten steps of 32,768 bodies by numba. `--small` makes all of them tiny, for tests.
Prints one line of JSON, with milliseconds.

To compare two drivers, run the program on each in turn:

    DEV=CUDA python3 whole_programs.py inference
    DEV=CUDA causeway cuda --gpu cuda -- python3 whole_programs.py inference
"""

import argparse
import json
import statistics
import time


def tinygrad_training(small):
    from tinygrad import Tensor, TinyJit
    from tinygrad.helpers import Context
    from tinygrad.nn import Linear
    from tinygrad.nn.optim import SGD
    from tinygrad.nn.state import get_parameters

    width, batch = (64, 32) if small else (4096, 2048)
    layers = [Linear(width, width) for _ in range(4)]
    optimizer = SGD(get_parameters(layers), lr=1e-4)
    inputs, wanted = (Tensor.randn(batch, width).realize() for _ in range(2))

    @TinyJit
    @Context(TRAINING=1)
    def step():
        optimizer.zero_grad()
        values = inputs
        for layer in layers:
            values = layer(values).relu()
        loss = (values - wanted).square().mean().backward()
        return loss.realize(*optimizer.schedule_step())

    return lambda: step().item()


def tinygrad_inference(small):
    from tinygrad import Tensor, TinyJit

    width, tokens, batch = (64, 16, 2) if small else (2048, 512, 4)
    heads = width // 32 if small else width // 128

    def weight(*shape):
        return (Tensor.randn(*shape) * 0.02).realize()

    layers = [
        [weight(width, 3 * width), weight(width, width),
         weight(width, 4 * width), weight(4 * width, width)]
        for _ in range(4)
    ]

    @TinyJit
    def forward(values):
        for join, out, up, down in layers:
            query, key, value = (
                part.reshape(batch, tokens, heads, -1).transpose(1, 2)
                for part in values.layernorm().dot(join).chunk(3, dim=-1)
            )
            attention = query.scaled_dot_product_attention(key, value, is_causal=True)
            values = values + attention.transpose(1, 2).reshape(batch, tokens, width).dot(out)
            values = values + values.layernorm().dot(up).gelu().dot(down)
        # A kernel of its own, so that the sum is not a part of the last product.
        return values.contiguous().mean().realize()

    inputs = Tensor.randn(batch, tokens, width).realize()
    return lambda: forward(inputs).item()


def numba_bodies(small):
    import math

    import numpy
    from numba import cuda, float32

    bodies, steps = (256, 2) if small else (32768, 10)
    block = 128

    @cuda.jit(fastmath=True)
    def accelerate(positions, velocities, seconds):
        tile = cuda.shared.array((128, 4), float32)
        me = cuda.grid(1)
        x, y, z = positions[me, 0], positions[me, 1], positions[me, 2]
        ax = ay = az = float32(0)
        for first in range(0, positions.shape[0], cuda.blockDim.x):
            for i in range(4):
                tile[cuda.threadIdx.x, i] = positions[first + cuda.threadIdx.x, i]
            cuda.syncthreads()
            for other in range(cuda.blockDim.x):
                dx, dy, dz = tile[other, 0] - x, tile[other, 1] - y, tile[other, 2] - z
                square = dx * dx + dy * dy + dz * dz + float32(0.01)
                pull = tile[other, 3] / (square * math.sqrt(square))
                ax, ay, az = ax + dx * pull, ay + dy * pull, az + dz * pull
            cuda.syncthreads()
        velocities[me, 0] += ax * seconds
        velocities[me, 1] += ay * seconds
        velocities[me, 2] += az * seconds

    @cuda.jit
    def move(positions, velocities, seconds):
        me = cuda.grid(1)
        for i in range(3):
            positions[me, i] += velocities[me, i] * seconds

    random = numpy.random.default_rng(1)
    positions = cuda.to_device(random.random((bodies, 4), dtype=numpy.float32))
    velocities = cuda.to_device(numpy.zeros((bodies, 4), dtype=numpy.float32))

    def run():
        for _ in range(steps):
            accelerate[bodies // block, block](positions, velocities, numpy.float32(1e-3))
            move[bodies // block, block](positions, velocities, numpy.float32(1e-3))
        cuda.synchronize()

    return run


PROGRAMS = {"training": tinygrad_training, "inference": tinygrad_inference, "bodies": numba_bodies}


def main():
    parser = argparse.ArgumentParser(description="Times whole programs.")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--repetitions", type=int, default=30)
    options = parser.parse_args()
    run = PROGRAMS[options.program](options.small)
    for _ in range(5):
        run()
    times = []
    for _ in range(options.repetitions):
        begun = time.perf_counter()
        run()
        times.append((time.perf_counter() - begun) * 1e3)
    figures = {"median_ms": statistics.median(times), "least_ms": min(times), "most_ms": max(times)}
    print(json.dumps({"program": options.program, "repetitions": options.repetitions, **figures}))


main()
