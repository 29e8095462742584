#!/usr/bin/env python3
"""Launches, copies and waits of PyCUDA, many times, in phases of a guest.

    causeway cuda -- python3 pycuda_operations.py vector_add.ptx [TIMES]
"""

import pathlib
import sys

import numpy as np
import pycuda.driver as cuda
from phases import repeat

LENGTH = 1000
GRID, BLOCK = (8, 1), (128, 1, 1)


class Vectors:
    """Two vectors and their sum, on the device, and a stream."""

    def __init__(self, ptx):
        self.stream, self.event = cuda.Stream(), cuda.Event()
        self.module = cuda.module_from_buffer(ptx)
        self.kernel = self.module.get_function("vector_add")
        self.a, self.b, self.total = (cuda.mem_alloc(4 * LENGTH) for _ in range(3))

    def submit(self, stream=None):
        parameters = [self.a, self.b, self.total, np.uint32(LENGTH)]
        self.kernel(*parameters, grid=GRID, block=BLOCK, stream=stream)

    def launch(self):
        self.submit(self.stream)
        self.stream.synchronize()

    def launch_on_default_stream(self):
        self.submit()
        cuda.Context.synchronize()

    def launch_and_wait_for_event(self):
        self.submit(self.stream)
        self.event.record(self.stream)
        self.event.synchronize()

    def copy(self, memory):
        cuda.memcpy_htod(self.a, memory)
        cuda.memcpy_dtoh(memory, self.total)

    def copy_on_stream(self, memory):
        cuda.memcpy_htod_async(self.a, memory, self.stream)
        cuda.memcpy_dtoh_async(memory, self.total, self.stream)
        self.stream.synchronize()

    def new_memory(self, memory):
        """Allocates memory, fills it, reads it, and frees it."""
        allocated = cuda.mem_alloc(4 * LENGTH)
        cuda.memset_d32(int(allocated), 7, LENGTH)
        cuda.memcpy_dtoh(memory, allocated)
        allocated.free()

    def check(self, memory):
        """Adds vectors that are copied through `memory`, and checks the sum."""
        for factor, vector in ((2, self.b), (3, self.a)):
            memory[:] = factor * np.arange(LENGTH)
            cuda.memcpy_htod(vector, memory)
        self.launch()
        cuda.memcpy_dtoh(memory, self.total)
        if not np.array_equal(memory, 5 * np.arange(LENGTH)):
            raise RuntimeError("sums are wrong")


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    cuda.init()
    context = cuda.Device(0).make_context()
    vectors = Vectors(pathlib.Path(sys.argv[1]).read_bytes())
    pageable = np.zeros(LENGTH, np.uint32)
    pinned = cuda.pagelocked_empty(LENGTH, np.uint32)
    vectors.check(pageable)
    repeat("launch, wait for stream", times, vectors.launch)
    repeat("launch, wait for context", times, vectors.launch_on_default_stream)
    repeat("launch, event, wait for it", times, vectors.launch_and_wait_for_event, 3)
    repeat("copies, pageable memory", times, lambda: vectors.copy(pageable))
    repeat("copies on stream, pinned memory", times, lambda: vectors.copy_on_stream(pinned), 3)
    repeat("new memory, fill, copy", times, lambda: vectors.new_memory(pageable), 4)
    vectors.check(pinned)
    context.pop()
    print(f"{LENGTH} sums are right")


main()
