"""The driver library by ctypes, memory for arguments, and the API's structures.

Arguments are integers: all of them are passed in 64 bits, of which a call reads as many as it has.
A structure that is passed by value is a `ctypes.Structure`.
"""

import ctypes
import struct


class SetupFailed(Exception):
    """A call failed that prepares what a row needs."""


class Driver:
    """A loaded library, whose functions return numbers."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def call(self, name, *arguments):
        """Calls a function and returns its CUresult."""
        function = getattr(self.library, name)
        function.restype = ctypes.c_uint32
        return function(*(as_argument(argument) for argument in arguments))

    def check(self, name, *arguments):
        """Calls a function that must succeed."""
        code = self.call(name, *arguments)
        if code != 0:
            raise SetupFailed(f"{name} {code}")


def as_argument(value):
    return ctypes.c_uint64(value) if isinstance(value, int) else value


class Arena:
    """Memory of the process whose addresses are arguments. It stays until the process ends."""

    def __init__(self):
        self.kept = []

    def bytes(self, content):
        """Returns the address of a copy of `content`, aligned to 16 bytes."""
        buffer = ctypes.create_string_buffer(len(content) + 32)
        self.kept.append(buffer)
        address = (ctypes.addressof(buffer) + 15) & ~15
        ctypes.memmove(address, bytes(content), len(content))
        return address

    def zeros(self, count):
        return self.bytes(bytes(count))

    def text(self, text):
        return self.bytes(text.encode() + b"\0")

    def pack(self, layout, *values):
        """Returns the address of a structure that `struct` lays out, without gaps."""
        return self.bytes(struct.pack("=" + layout, *values))

    def array(self, *values):
        """Returns the address of 64-bit words."""
        return self.pack(f"{len(values)}Q", *(value & (1 << 64) - 1 for value in values))

    def words(self, *values):
        """Returns the address of 32-bit words."""
        return self.pack(f"{len(values)}I", *(value & (1 << 32) - 1 for value in values))


def read_word(address):
    return ctypes.c_uint64.from_address(address).value


class ByValue64(ctypes.Structure):
    """A CUipcMemHandle or CUipcEventHandle."""

    _fields_ = [("bytes", ctypes.c_uint8 * 64)]


HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4


class Structures:
    """Structures of cuda.h with right values, some of which a row replaces."""

    def __init__(self, arena):
        self.arena = arena

    def copy_2d(self, to=0, source=0, *, width=16, height=4, from_kind=HOST, to_kind=DEVICE,
                from_pitch=64, to_pitch=64, from_x=0, to_x=0, from_y=0, to_y=0):
        """CUDA_MEMCPY2D"""
        def side(kind, x, y, address, pitch):
            host, device = (address, 0) if kind == HOST else (0, address)
            return (x, y, kind, 0, host, device, 0, pitch)
        return self.arena.pack("QQIIQQQQ QQIIQQQQ QQ",
                               *side(from_kind, from_x, from_y, source, from_pitch),
                               *side(to_kind, to_x, to_y, to, to_pitch), width, height)

    def copy_3d(self, to=0, source=0, *, width=16, height=4, depth=2, from_kind=HOST,
                to_kind=DEVICE, from_pitch=64, to_pitch=64, from_height=4, to_height=4, lod=0,
                contexts=(0, 0)):
        """CUDA_MEMCPY3D, and with `contexts` CUDA_MEMCPY3D_PEER"""
        def side(kind, address, context, pitch, rows):
            host, device = (address, 0) if kind == HOST else (0, address)
            return (0, 0, 0, lod, kind, 0, host, device, 0, context, pitch, rows)
        return self.arena.pack("QQQQIIQQQQQQ QQQQIIQQQQQQ QQQ",
                               *side(from_kind, source, contexts[0], from_pitch, from_height),
                               *side(to_kind, to, contexts[1], to_pitch, to_height),
                               width, height, depth)

    def kernel_node(self, function, parameters=0, *, grid=(1, 1, 1), block=(32, 1, 1), shared=0,
                    extra=0, kernel=0, context=0):
        """CUDA_KERNEL_NODE_PARAMS_v2, which begins as v1 does"""
        return self.arena.pack("Q 6I II QQQQ", function, *grid, *block, shared, 0, parameters,
                               extra, kernel, context)

    def fill_node(self, address, *, pitch=0, value=1, element=4, width=8, height=1):
        """CUDA_MEMSET_NODE_PARAMS"""
        return self.arena.pack("QQIIQQ", address, pitch, value, element, width, height)

    def host_node(self, function, argument=0):
        """CUDA_HOST_NODE_PARAMS"""
        return self.arena.pack("QQ", function, argument)

    def operation(self, address, *, kind=2, value=0, flags=0):
        """CUstreamBatchMemOpParams: by default a write of 32 bits"""
        return self.arena.pack("IIQQIIQQ", kind, 0, address, value, flags, 0, 0, 0)

    def batch_node(self, operations, *, context=0, count=1, flags=0):
        """CUDA_BATCH_MEM_OP_NODE_PARAMS"""
        return self.arena.pack("QIIQII", context, count, 0, operations, flags, 0)

    def launch(self, stream=0, *, grid=(1, 1, 1), block=(32, 1, 1), shared=0, attributes=0,
               count=0):
        """CUlaunchConfig"""
        return self.arena.pack("6I II QQ II", *grid, *block, shared, 0, stream, attributes, count,
                               0)

    def attribute(self, kind, *values):
        """CUlaunchAttribute"""
        values = (*values, *(16 - len(values)) * (0,))
        return self.arena.pack("II 16I", kind, 0, *values)

    def physical(self, *, kind=1, handle=1, location=1, device=0, flags=(0,) * 8):
        """CUmemAllocationProp"""
        return self.arena.pack("iIiiQ 8B", kind, handle, location, device, 0, *flags)

    def pool_of(self, *, kind=1, handle=0, location=1, device=0, limit=0, usage=0, rest=0):
        """CUmemPoolProps"""
        return self.arena.pack("iIiiQQH 54B", kind, handle, location, device, 0, limit, usage,
                               *54 * (rest,))

    def access(self, *, location=1, device=0, flags=3):
        """CUmemAccessDesc"""
        return self.arena.pack("iii", location, device, flags)

    def location(self, kind=1, device=0):
        """CUmemLocation behind a pointer"""
        return self.arena.pack("ii", kind, device)

    def instantiation(self, *, flags=0, stream=0):
        """CUDA_GRAPH_INSTANTIATE_PARAMS"""
        return self.arena.pack("QQQII", flags, stream, 0, 0, 0)

    def window(self, address, size=256, ratio=1.0, hit=0, miss=0):
        """CUstreamAttrValue of an access policy window"""
        return self.arena.pack("QQfii 36B", address, size, ratio, hit, miss, *36 * (0,))
