#!/usr/bin/env python3
"""Launches, copies and waits of cuda.core, many times, in phases of a guest.

    causeway cuda -- python3 cuda_core_operations.py vector_add.ptx [TIMES]
"""

import ctypes
import pathlib
import sys

from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, ObjectCode, launch
from phases import repeat

LENGTH = 1000
BYTES = 4 * LENGTH


class Vectors:
    """Two vectors and their sum, on the device, pinned memory, and a stream."""

    def __init__(self, ptx):
        self.device = Device()
        self.device.set_current()
        self.stream = self.device.create_stream()
        self.kernel = ObjectCode.from_ptx(ptx).get_kernel("vector_add")
        self.config = LaunchConfig(grid=8, block=128)
        allocate = self.device.allocate
        self.a, self.b, self.total = (allocate(BYTES, stream=self.stream) for _ in range(3))
        self.memory = LegacyPinnedMemoryResource().allocate(BYTES)
        self.values = (ctypes.c_uint32 * LENGTH).from_address(int(self.memory.handle))

    def submit(self):
        parameters = [self.a, self.b, self.total, ctypes.c_uint32(LENGTH)]
        launch(self.stream, self.config, self.kernel, *parameters)

    def launch(self):
        self.submit()
        self.stream.sync()

    def launch_and_wait_for_event(self):
        self.submit()
        self.stream.record().sync()

    def copy(self):
        self.a.copy_from(self.memory, stream=self.stream)
        self.total.copy_to(self.memory, stream=self.stream)
        self.stream.sync()

    def new_buffer(self):
        """Allocates memory from the device's pool, fills it, and frees it."""
        buffer = self.device.allocate(BYTES, stream=self.stream)
        buffer.fill(7, stream=self.stream)
        buffer.close(self.stream)
        self.stream.sync()

    def check(self):
        for factor, vector in ((2, self.b), (3, self.a)):
            self.values[:] = [factor * i for i in range(LENGTH)]
            vector.copy_from(self.memory, stream=self.stream)
            self.stream.sync()
        self.launch()
        self.total.copy_to(self.memory, stream=self.stream)
        self.stream.sync()
        if list(self.values) != [5 * i for i in range(LENGTH)]:
            raise RuntimeError("sums are wrong")


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    vectors = Vectors(pathlib.Path(sys.argv[1]).read_bytes())
    vectors.check()
    repeat("launch, wait", times, vectors.launch)
    repeat("launch, event, wait for it", times, vectors.launch_and_wait_for_event, 3)
    repeat("copies, pinned memory", times, vectors.copy, 3)
    repeat("memory of the pool, fill", times, vectors.new_buffer, 4)
    vectors.check()
    print(f"{LENGTH} sums are right")


main()
