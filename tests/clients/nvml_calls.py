"""Calls of NVML by nvidia-ml-py, as monitors make them, in a process that uses CUDA, too.

The library that they find is the one of `causeway cuda`.
"""

import ctypes
import os
import time
import unittest

import pynvml

MEBIBYTE = 1 << 20


class Device(unittest.TestCase):
    """The one device, initialized for each test."""

    def setUp(self):
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)
        self.device = pynvml.nvmlDeviceGetHandleByIndex(0)

    def test_identity(self):
        self.assertEqual(pynvml.nvmlDeviceGetCount(), 1)
        # The software back end's name, or that of the GPU.
        name = pynvml.nvmlDeviceGetName(self.device)
        self.assertTrue(name.startswith(("Causeway", "NVIDIA")), name)
        uuid = pynvml.nvmlDeviceGetUUID(self.device)
        bus = pynvml.nvmlDeviceGetPciInfo(self.device).busId
        for found in (pynvml.nvmlDeviceGetHandleByUUID(uuid),
                      pynvml.nvmlDeviceGetHandleByPciBusId(bus)):
            self.assertEqual(pynvml.nvmlDeviceGetIndex(found), 0)
        self.assertEqual(pynvml.nvmlDeviceGetCudaComputeCapability(self.device), (9, 0))

    def test_sensors_are_not_supported(self):
        for call in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetFanSpeed,
                     pynvml.nvmlDeviceGetCurrPcieLinkWidth, pynvml.nvmlDeviceGetEccMode,
                     pynvml.nvmlDeviceGetPerformanceState, pynvml.nvmlDeviceGetMigMode,
                     lambda device: pynvml.nvmlDeviceGetTemperature(device, 0),
                     lambda device: pynvml.nvmlDeviceGetClockInfo(device, 0)):
            with self.assertRaises(pynvml.NVMLError_NotSupported):
                call(self.device)

    def test_wrong_handles_are_refused(self):
        with self.assertRaises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetName(ctypes.c_void_p(1))
        with self.assertRaises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetHandleByIndex(1)

    def test_work_of_the_process_is_seen(self):
        cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
        bytes_ = ctypes.c_size_t(64 * MEBIBYTE)
        self.assertEqual(cuda.cuInit(0), 0)
        self.assertEqual(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.assertEqual(cuda.cuCtxSetCurrent(context), 0)
        before = pynvml.nvmlDeviceGetMemoryInfo(self.device)
        self.assertEqual(cuda.cuMemAlloc_v2(ctypes.byref(address), bytes_), 0)
        pynvml.nvmlDeviceGetUtilizationRates(self.device)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            self.assertEqual(cuda.cuMemsetD8_v2(address, 1, bytes_), 0)
            self.assertEqual(cuda.cuCtxSynchronize(), 0)
        self.assertIn(pynvml.nvmlDeviceGetUtilizationRates(self.device).gpu, range(1, 101))
        after = pynvml.nvmlDeviceGetMemoryInfo(self.device, version=pynvml.nvmlMemory_v2)
        self.assertGreaterEqual(after.used - before.used, 64 * MEBIBYTE)
        self.assertEqual(after.used + after.free, after.total)
        [own] = pynvml.nvmlDeviceGetComputeRunningProcesses(self.device)
        self.assertEqual(own.pid, os.getpid())
        self.assertGreaterEqual(own.usedGpuMemory, 64 * MEBIBYTE)


class Library(unittest.TestCase):
    """The library as a whole."""

    def test_nothing_works_before_initialization(self):
        with self.assertRaises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetCount()

    def test_versions(self):
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)
        self.assertRegex(pynvml.nvmlSystemGetDriverVersion(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(pynvml.nvmlSystemGetCudaDriverVersion(), 13000)


if __name__ == "__main__":
    unittest.main()
