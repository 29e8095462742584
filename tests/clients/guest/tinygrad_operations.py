#!/usr/bin/env python3
"""Kernels, copies and waits of tinygrad, many times, in phases of a guest.

    DEV=CUDA:PTX causeway cuda -- python3 tinygrad_operations.py [TIMES]
"""

import sys

from phases import repeat
from tinygrad import Device, Tensor, TinyJit, dtypes

VALUES = [float(i) for i in range(1000)]


@TinyJit
def add(a, b):
    return (a + b).realize()


@TinyJit
def two_kernels(values):
    doubled = (values * 2).contiguous()
    return (doubled * doubled.sum()).realize()


class Tensors:
    """Two vectors on the device, and their values as bytes."""

    def __init__(self):
        self.device = Device[Device.DEFAULT]
        self.a, self.b = (Tensor(VALUES, dtype=dtypes.float).realize() for _ in range(2))
        self.few = self.a[:64].contiguous().realize()
        self.bytes = bytes(self.a.data())

    def launch(self):
        add(self.a, self.b)
        self.device.synchronize()

    def graph(self):
        two_kernels(self.few)
        self.device.synchronize()

    def copy(self):
        """Copies to the device and back, which waits."""
        back = bytes(Tensor(self.bytes, dtype=dtypes.float).realize().data())
        if back != self.bytes:
            raise RuntimeError("a copy differs")

    def realize(self):
        """Makes a tensor, computes with it, and reads the result: everything but the JIT."""
        total = (Tensor(VALUES[:10], dtype=dtypes.float) + 1).tolist()
        if total != [value + 1 for value in VALUES[:10]]:
            raise RuntimeError("sums are wrong")


def main():
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    tensors = Tensors()
    repeat("launch, wait", times, tensors.launch)
    repeat("graph, wait", times, tensors.graph)
    repeat("copies", times, tensors.copy)
    repeat("tensor in, kernel, tensor out", times, tensors.realize, 3)
    if add(tensors.a, tensors.b).tolist() != [2 * value for value in VALUES]:
        raise RuntimeError("sums are wrong")
    print(f"{len(VALUES)} sums are right")


main()
