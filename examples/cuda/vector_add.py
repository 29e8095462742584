#!/usr/bin/env python3
"""Adds two vectors by the CUDA driver API, many times, with nothing but Python's own library.

    causeway cuda -- python3 vector_add.py vector_add.ptx
    causeway run --kernel vmlinuz --disk root.img,ro --root /dev/vda --program /usr/bin/python3 \\
        --file vector_add.py --file vector_add.ptx -- vector_add.py vector_add.ptx

With `--file causeway-info` and `causeway-info` as the last argument, it marks phases of the guest,
so that the host counts the exits of launches and copies apart.
"""

import ctypes
import subprocess
import sys
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p

SCHED_SPIN = 1  # CU_CTX_SCHED_SPIN: a wait that sleeps takes exits in a guest
LENGTH, TIMES = 1000, 100
BYTES = 4 * LENGTH

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    """Calls a function of the driver. Raises an error if it fails."""
    result = getattr(cuda, name)(*arguments)
    if result:
        raise RuntimeError(f"{name} failed with {result}")


class Device:
    """The first GPU, with the kernel and three vectors on it."""

    def __init__(self, ptx):
        context, module, self.function = c_void_p(), c_void_p(), c_void_p()
        call("cuInit", 0)
        call("cuDevicePrimaryCtxSetFlags_v2", 0, SCHED_SPIN)
        call("cuDevicePrimaryCtxRetain", byref(context), 0)
        call("cuCtxSetCurrent", context)
        call("cuModuleLoadData", byref(module), ptx)
        call("cuModuleGetFunction", byref(self.function), module, b"vector_add")
        self.a, self.b, self.sum = c_uint64(), c_uint64(), c_uint64()
        for vector in (self.a, self.b, self.sum):
            call("cuMemAlloc_v2", byref(vector), c_size_t(BYTES))
        values = [self.a, self.b, self.sum, c_uint32(LENGTH)]
        self.values = values  # the pointers do not keep them
        self.parameters = (c_void_p * 4)(*[ctypes.addressof(value) for value in values])

    def launch(self):
        """Adds the vectors, and waits."""
        grid, block = (-(-LENGTH // 128), 1, 1), (128, 1, 1)
        call("cuLaunchKernel", self.function, *grid, *block, 0, None, self.parameters, None)
        call("cuCtxSynchronize")

    def put(self, vector, memory):
        """Copies memory of the host to a vector."""
        call("cuMemcpyHtoD_v2", vector, memory, c_size_t(BYTES))

    def get(self, memory):
        """Copies the sum to memory of the host."""
        call("cuMemcpyDtoH_v2", memory, self.sum, c_size_t(BYTES))

    def compute(self, memory):
        """Adds vectors that are copied through this memory, and checks the sum."""
        for factor, vector in ((2, self.b), (3, self.a)):
            memory[:] = [factor * i for i in range(LENGTH)]
            self.put(vector, memory)
        self.launch()
        self.get(memory)
        if list(memory) != [5 * i for i in range(LENGTH)]:
            raise RuntimeError("sums are wrong")


def phase(tool, name, work):
    """Does work many times, in a phase of that name."""
    if tool:
        subprocess.run([tool, "phase", "begin", name], check=True)
    for _ in range(TIMES):
        work()
    if tool:
        subprocess.run([tool, "phase", "end", "--operations", str(2 * TIMES)], check=True)


def main():
    with open(sys.argv[1], "rb") as file:
        device = Device(file.read())
    tool = f"./{sys.argv[2]}" if len(sys.argv) > 2 else None
    vector = c_uint32 * LENGTH
    address = c_void_p()
    call("cuMemHostAlloc", byref(address), c_size_t(BYTES), 0)
    pinned, pageable = vector.from_address(address.value), vector()
    for memory in (pinned, pageable):
        device.compute(memory)
    phase(tool, "launch and wait", device.launch)
    for kind, memory in (("pinned", pinned), ("pageable", pageable)):
        copies = lambda: (device.put(device.a, memory), device.get(memory))
        phase(tool, f"copies, {kind} memory", copies)
        device.compute(memory)
    print(f"{LENGTH} sums are right")


main()
