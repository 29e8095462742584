#!/usr/bin/env python3
"""Launches, copies and waits of numba-cuda, many times, in phases of a guest.

    causeway cuda -- python3 numba_operations.py [TIMES]
"""

import sys

import numpy as np
from numba import cuda
from numba.cuda.core import config
from phases import repeat

LENGTH = 1000
GRID, BLOCK = 8, 128

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0


@cuda.jit
def add(a, b, total):
    i = cuda.grid(1)
    if i < total.size:
        total[i] = a[i] + b[i]


class Vectors:
    """Two vectors and their sum, on the device, and a stream."""

    def __init__(self):
        self.stream = cuda.stream()
        self.event = cuda.event()
        self.a, self.b, self.total = (cuda.device_array(LENGTH, np.uint32) for _ in range(3))

    def launch(self):
        add[GRID, BLOCK, self.stream](self.a, self.b, self.total)
        self.stream.synchronize()

    def launch_on_default_stream(self):
        add[GRID, BLOCK](self.a, self.b, self.total)
        cuda.synchronize()

    def launch_and_wait_for_event(self):
        add[GRID, BLOCK, self.stream](self.a, self.b, self.total)
        self.event.record(self.stream)
        self.event.synchronize()

    def copy(self, memory):
        self.a.copy_to_device(memory)
        self.total.copy_to_host(memory)

    def copy_on_stream(self, memory):
        self.a.copy_to_device(memory, self.stream)
        self.total.copy_to_host(memory, self.stream)
        self.stream.synchronize()

    def new_array(self, memory):
        """Makes an array on the device and drops it."""
        cuda.to_device(memory).copy_to_host(memory)

    def check(self, memory):
        """Adds vectors that are copied through `memory`, and checks the sum."""
        for factor, vector in ((2, self.b), (3, self.a)):
            memory[:] = factor * np.arange(LENGTH)
            vector.copy_to_device(memory)
        self.launch()
        self.total.copy_to_host(memory)
        if not np.array_equal(memory, 5 * np.arange(LENGTH)):
            raise RuntimeError("sums are wrong")


def main():
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    vectors = Vectors()
    pageable, pinned = np.zeros(LENGTH, np.uint32), cuda.pinned_array(LENGTH, np.uint32)
    vectors.check(pageable)
    repeat("launch, wait for stream", times, vectors.launch)
    repeat("launch, wait for context", times, vectors.launch_on_default_stream)
    repeat("launch, event, wait for it", times, vectors.launch_and_wait_for_event, 3)
    repeat("copies, pageable memory", times, lambda: vectors.copy(pageable))
    repeat("copies on stream, pinned memory", times, lambda: vectors.copy_on_stream(pinned), 3)
    repeat("new array, copies", times, lambda: vectors.new_array(pageable))
    vectors.check(pinned)
    print(f"{LENGTH} sums are right")


main()
