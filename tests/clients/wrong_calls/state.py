"""What the arguments of the calls refer to by name: objects that are right, and some that are not.

`State` makes an object when an expression first names it. `shared` objects stay for the next rows
of the same process; the others are made anew for each row.
"""

import ctypes
import mmap
import os
import pathlib
import struct

from driver import Arena, ByValue64, SetupFailed, Structures, read_word

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20

#: Names of numbers. An invalid one is an enumeration's value that no version of CUDA has.
NUMBERS = {
    "device": 0, "flags": 0, "zero": 0, "one": 1, "bytes": 64, "wanted": 1,
    "huge": 1 << 50, "memory_bytes": 65536, "beyond": 65537, "room": 256,
    "limit": 0, "cache": 0, "banks": 0, "ordinal": 0, "device_attribute": 1,
    "function_attribute": 0, "pool_attribute": 4, "pointer_attribute": 2, "peer_attribute": 1,
    "stream_attribute": 3, "advice": 1, "range_attribute": 1, "capture_mode": 0,
    "input_kind": 1, "access_flags": 3, "index": 0, "granularity_option": 0,
    "launch_stream": 0, "legacy_stream": 1, "unit": 2 * MIB, "block_threads": 32, "count": 16,
    "element": 4, "pitch": 512, "width": 16, "height": 4, "priority": 0, "affinity": 0,
    "exclusive": 1 << 20,
}

SHARED, PER_ROW = {}, {}


def shared(make):
    SHARED[make.__name__] = make
    return make


def per_row(make):
    PER_ROW[make.__name__] = make
    return make


class State(dict):
    """Values by name, made when they are first asked for."""

    def __init__(self, driver):
        super().__init__(NUMBERS)
        self.driver = driver
        self.arena = Arena()
        self.cleanups = []
        self.made_for_row = []
        structures = Structures(self.arena)
        builders = [name for name in dir(Structures) if not name.startswith("_")]
        self.update({name: getattr(structures, name) for name in builders if name != "arena"})
        for name in ["array", "words", "text", "zeros", "pack"]:
            self[name] = getattr(self.arena, name)

    def __missing__(self, name):
        if name in SHARED:
            value = SHARED[name](self)
        elif name in PER_ROW:
            value = PER_ROW[name](self)
            self.made_for_row.append(name)
        else:
            raise KeyError(name)
        self[name] = value
        return value

    def get(self, function, *arguments):
        """Calls a function whose first argument is the place of the result, and returns that."""
        place = self.arena.zeros(128)
        self.driver.check(function, place, *arguments)
        return read_word(place)

    def at_end_of_row(self, function, *arguments):
        self.cleanups.append((function, arguments))

    def end_row(self):
        """Takes back what a row may have changed. Returns whether the context still works."""
        for function, arguments in reversed(self.cleanups):
            self.driver.call(function, *arguments)
        self.cleanups.clear()
        for name in self.made_for_row:
            self.pop(name, None)
        self.made_for_row.clear()
        self.driver.call("cuCtxSetCurrent", self["context"])
        return self.driver.call("cuCtxSynchronize") == 0

    def start(self):
        """Initializes CUDA and makes the primary context current."""
        self.driver.check("cuInit", 0)
        self.driver.check("cuCtxSetCurrent", self["context"])


# Memory of the process.


@per_row
def out(state):
    return state.arena.zeros(4096)


@per_row
def second_out(state):
    return state.arena.zeros(4096)


@per_row
def third_out(state):
    return state.arena.zeros(4096)


@per_row
def forged(state):
    """A handle that the library did not make: an address of zeroed memory."""
    return state.arena.zeros(8192) + 4096


@shared
def host(state):
    return state.arena.zeros(2 * NUMBERS["memory_bytes"])


@per_row
def pages(state):
    """Memory of the process that can be registered."""
    area = mmap.mmap(-1, 65536)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    state.arena.kept.append(area)
    return address


@shared
def function_name(state):
    return state.arena.text("store")


@shared
def variable_name(state):
    return state.arena.text("counter")


@shared
def other_name(state):
    return state.arena.text("nothing")


@shared
def api_name(state):
    return state.arena.text("cuMemAlloc")


@shared
def path(state):
    return state.arena.text(str(HERE / "kernels.ptx"))


@shared
def missing_path(state):
    return state.arena.text("/nonexistent/kernels.ptx")


@shared
def folder(state):
    return state.arena.text(str(HERE))


@shared
def bus_text(state):
    return state.arena.text("not a bus address")


# Images.


def ptx_text():
    return (HERE / "kernels.ptx").read_bytes()


@shared
def image(state):
    return state.arena.bytes(ptx_text() + b"\0")


@shared
def image_bytes(state):
    return len(ptx_text()) + 1


def replaced(state, old, new):
    return state.arena.bytes(ptx_text().replace(old, new) + b"\0")


@shared
def empty_image(state):
    return state.arena.zeros(4096)


@shared
def text_image(state):
    return state.arena.text("This is no kernel image, although it is text.")


@shared
def truncated_image(state):
    return state.arena.bytes(ptx_text()[:-40] + b"\0")


@shared
def future_image(state):
    """PTX for an architecture that no device has."""
    return replaced(state, b"sm_70", b"sm_999")


@shared
def newer_image(state):
    """PTX of a version that no driver knows."""
    return replaced(state, b".version 7.0", b".version 99.0")


@shared
def unresolved_image(state):
    text = b".extern .func missing();\n.visible .entry empty()\n{\n    call missing, ();\n"
    return replaced(state, b".visible .entry empty()\n{\n", text)


def elf(machine=190, flags=0x460546, kind=2, sections=0, headers_at=64, size=4096):
    """Returns a file header of an ELF file for NVIDIA's GPUs, followed by zeros."""
    ident = b"\x7fELF" + bytes([2, 1, 1, 0x33, 7]) + bytes(7)
    header = struct.pack("=HHIQQQIHHHHHH", kind, machine, 1, 0, 0, headers_at, flags, 64, 56, 0,
                         64, sections, 0)
    return (ident + header).ljust(size, b"\0")


@shared
def empty_elf(state):
    return state.arena.bytes(elf())


@shared
def host_elf(state):
    """An ELF file for x86-64."""
    return state.arena.bytes(elf(machine=62))


@shared
def old_elf(state):
    """An ELF file for sm_20."""
    return state.arena.bytes(elf(flags=0x140514))


@shared
def crooked_elf(state):
    """An ELF file whose sections lie far behind its end."""
    return state.arena.bytes(elf(sections=65535, headers_at=1 << 60))


def fat(body=b"", *, magic=0xBA55ED50, version=1, size=None):
    header = struct.pack("=IHHQ", magic, version, 16, len(body) if size is None else size)
    return (header + body).ljust(4096, b"\0")


def fat_entry(payload, *, kind=1, architecture=70, flags=0, size=None, unpacked=0, packed=0):
    """Returns an entry of a fat binary. Kinds: 1 is PTX, 2 is ELF."""
    size = len(payload) if size is None else size
    return struct.pack("=HHIQIIHHIIIQQQ", kind, 0x101, 64, size, packed, 0, 0, 7, architecture, 0,
                       0, flags, 0, unpacked) + payload


def wrapped(state, image):
    """A __fatBinC_Wrapper_t around a fat binary."""
    return state.arena.pack("IIQQ", 0x466243B1, 1, state.arena.bytes(image), 0)


@shared
def empty_fat(state):
    return state.arena.bytes(fat())


@shared
def wrapped_empty_fat(state):
    return wrapped(state, fat())


@shared
def wrapped_nothing(state):
    return state.arena.pack("IIQQ", 0x466243B1, 1, 0, 0)


@shared
def future_version_fat(state):
    return state.arena.bytes(fat(version=99))


@shared
def short_entry_fat(state):
    """A fat binary that ends within the header of its entry."""
    return state.arena.bytes(fat(fat_entry(b"")[:20]))


@shared
def foreign_fat(state):
    """A fat binary with machine code for sm_20 only."""
    return state.arena.bytes(fat(fat_entry(elf(flags=0x140514), kind=2, architecture=20)))


@shared
def future_fat(state):
    """A fat binary with PTX for an architecture that no device has."""
    text = ptx_text().replace(b"sm_70", b"sm_999") + b"\0"
    return state.arena.bytes(fat(fat_entry(text.ljust(4096, b"\0"), architecture=999)))


@shared
def bomb_fat(state):
    """A fat binary with 16 bytes that claim to be 64 GiB of text, compressed with LZ4."""
    entry = fat_entry(b"\x1f.\x01\0" + 12 * b"\xff", flags=0x2000, unpacked=1 << 36, packed=16)
    return state.arena.bytes(fat(entry))


@shared
def broken_lz4_fat(state):
    """A fat binary whose compressed entry refers to text before its beginning."""
    entry = fat_entry(b"\x14a\xff\xff" + bytes(12), flags=0x2000, unpacked=4096, packed=16)
    return state.arena.bytes(fat(entry))


@shared
def encrypted_fat(state):
    """A fat binary whose only entry says that it is encrypted."""
    entry = fat_entry(bytes(range(64)), kind=2, architecture=90, flags=0x800)
    return state.arena.bytes(fat(entry))


@shared
def foreign_fat_bytes(state):
    return 4096


# Contexts, streams and events.


@shared
def context(state):
    return state.get("cuDevicePrimaryCtxRetain", 0)


def make_context(state):
    handle = state.get("cuCtxCreate_v2", 0, 0)
    state.driver.check("cuCtxSetCurrent", state["context"])
    return handle


@shared
def other_context(state):
    return make_context(state)


@per_row
def new_context(state):
    return make_context(state)


@per_row
def destroyed_context(state):
    handle = make_context(state)
    state.driver.check("cuCtxDestroy_v2", handle)
    return handle


@per_row
def no_context(state):
    """Takes all contexts from the thread. Worth 0."""
    while state.driver.call("cuCtxPopCurrent_v2", state["out"]) == 0 and read_word(state["out"]):
        pass
    return 0


@shared
def stream(state):
    return state.get("cuStreamCreate", 1)


@shared
def second_stream(state):
    return state.get("cuStreamCreate", 1)


@per_row
def new_stream(state):
    return state.get("cuStreamCreate", 1)


@per_row
def destroyed_stream(state):
    handle = state.get("cuStreamCreate", 1)
    state.driver.check("cuStreamDestroy_v2", handle)
    return handle


def in_other_context(state, make):
    state.driver.check("cuCtxSetCurrent", state["other_context"])
    made = make()
    state.driver.check("cuCtxSetCurrent", state["context"])
    return made


@shared
def foreign_stream(state):
    """A stream of another context."""
    return in_other_context(state, lambda: state.get("cuStreamCreate", 1))


@shared
def foreign_event(state):
    return in_other_context(state, lambda: state.get("cuEventCreate", 0))


@shared
def foreign_function(state):
    def make():
        module = state.get("cuModuleLoadData", state["image"])
        return state.get("cuModuleGetFunction", module, state["function_name"])
    return in_other_context(state, make)


@shared
def event(state):
    """An event that has been recorded."""
    handle = state.get("cuEventCreate", 0)
    state.driver.check("cuEventRecord", handle, state["stream"])
    state.driver.check("cuEventSynchronize", handle)
    return handle


@per_row
def new_event(state):
    return state.get("cuEventCreate", 0)


@per_row
def destroyed_event(state):
    handle = state.get("cuEventCreate", 0)
    state.driver.check("cuEventDestroy_v2", handle)
    return handle


@shared
def timeless_event(state):
    """An event without time."""
    return state.get("cuEventCreate", 2)


@shared
def shareable_event(state):
    """An event for other processes."""
    return state.get("cuEventCreate", 6)


@per_row
def callback(state):
    function = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(lambda _: None)
    state.arena.kept.append(function)
    return ctypes.cast(function, ctypes.c_void_p).value


@per_row
def stream_callback(state):
    kind = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64)
    function = kind(lambda *_: None)
    state.arena.kept.append(function)
    return ctypes.cast(function, ctypes.c_void_p).value


# Capture.


def begin_capture(state, mode):
    handle = state.get("cuStreamCreate", 1)
    state.driver.check("cuStreamBeginCapture_v2", handle, mode)
    state.at_end_of_row("cuStreamEndCapture", handle, state.arena.zeros(8))
    return handle


@per_row
def capturing(state):
    """A stream that captures in global mode."""
    return begin_capture(state, 0)


@per_row
def capturing_local(state):
    return begin_capture(state, 1)


@per_row
def capturing_relaxed(state):
    return begin_capture(state, 2)


@per_row
def capturing_blocking(state):
    """A stream that waits for the legacy stream, and captures in relaxed mode."""
    handle = state.get("cuStreamCreate", 0)
    state.driver.check("cuStreamBeginCapture_v2", handle, 2)
    state.at_end_of_row("cuStreamEndCapture", handle, state.arena.zeros(8))
    return handle


@per_row
def captured_event(state):
    """An event that was recorded in a capture."""
    handle = state.get("cuEventCreate", 0)
    state.driver.check("cuEventRecord", handle, state["capturing_relaxed"])
    return handle


@per_row
def joined_stream(state):
    """A stream that takes part in the capture of another one."""
    handle = state.get("cuStreamCreate", 1)
    state.driver.check("cuStreamWaitEvent", handle, state["captured_event"], 0)
    return handle


@per_row
def unjoined(state):
    """A capturing stream whose capture has work in another stream that it did not wait for."""
    state.driver.check("cuMemsetD8Async", state["memory"], 0, 64, state["joined_stream"])
    return state["capturing_relaxed"]


@per_row
def invalidated(state):
    """A capturing stream that a forbidden call has invalidated."""
    handle = state["capturing_relaxed"]
    if state.driver.call("cuStreamSynchronize", handle) == 0:
        raise SetupFailed("cuStreamSynchronize of a capture 0")
    return handle


# Modules.


@shared
def module(state):
    return state.get("cuModuleLoadData", state["image"])


@per_row
def new_module(state):
    return state.get("cuModuleLoadData", state["image"])


@per_row
def destroyed_module(state):
    handle = state.get("cuModuleLoadData", state["image"])
    state.driver.check("cuModuleUnload", handle)
    return handle


@per_row
def destroyed_function(state):
    """A function whose module is unloaded."""
    module = state.get("cuModuleLoadData", state["image"])
    function = state.get("cuModuleGetFunction", module, state["function_name"])
    state.driver.check("cuModuleUnload", module)
    return function


def named(state, name):
    return state.get("cuModuleGetFunction", state["module"], state.arena.text(name))


@shared
def function(state):
    return named(state, "store")


@shared
def empty(state):
    return named(state, "empty")


@shared
def narrow(state):
    """A function of at most 32 threads in a block."""
    return named(state, "narrow")


@shared
def wide(state):
    """A function of exactly 64 threads in a block."""
    return named(state, "wide")


@shared
def shared_memory(state):
    """A function that has 32 KiB of shared memory."""
    return named(state, "shared")


@shared
def stop(state):
    """A function that faults."""
    return named(state, "stop")


@per_row
def parameters(state):
    """Parameters of the function `store`."""
    arena = state.arena
    return arena.array(arena.array(state["memory"]), arena.words(7))


@shared
def library(state):
    return state.get("cuLibraryLoadData", state["image"], 0, 0, 0, 0, 0, 0)


@per_row
def new_library(state):
    return state.get("cuLibraryLoadData", state["image"], 0, 0, 0, 0, 0, 0)


@per_row
def destroyed_library(state):
    handle = state.get("cuLibraryLoadData", state["image"], 0, 0, 0, 0, 0, 0)
    state.driver.check("cuLibraryUnload", handle)
    return handle


@shared
def kernel(state):
    return state.get("cuLibraryGetKernel", state["library"], state["function_name"])


@per_row
def destroyed_kernel(state):
    """A kernel whose library is unloaded."""
    library = state.get("cuLibraryLoadData", state["image"], 0, 0, 0, 0, 0, 0)
    kernel = state.get("cuLibraryGetKernel", library, state["function_name"])
    state.driver.check("cuLibraryUnload", library)
    return kernel


def make_linker(state):
    place = state.arena.zeros(8)
    state.driver.check("cuLinkCreate_v2", 0, 0, 0, place)
    return read_word(place)


@per_row
def new_linker(state):
    return make_linker(state)


@per_row
def linker(state):
    """A linker that has something to link."""
    handle = make_linker(state)
    state.driver.check("cuLinkAddData_v2", handle, 1, state["image"], state["image_bytes"], 0, 0,
                       0, 0)
    return handle


@per_row
def destroyed_linker(state):
    handle = make_linker(state)
    state.driver.check("cuLinkDestroy", handle)
    return handle


# Memory of the device.


@shared
def memory(state):
    """64 KiB of device memory."""
    return state.get("cuMemAlloc_v2", NUMBERS["memory_bytes"])


@shared
def second_memory(state):
    return state.get("cuMemAlloc_v2", NUMBERS["memory_bytes"])


@per_row
def new_memory(state):
    return state.get("cuMemAlloc_v2", NUMBERS["memory_bytes"])


@per_row
def freed_memory(state):
    address = state.get("cuMemAlloc_v2", NUMBERS["memory_bytes"])
    state.driver.check("cuMemFree_v2", address)
    return address


@shared
def pinned(state):
    return state.get("cuMemAllocHost_v2", NUMBERS["memory_bytes"])


@per_row
def new_pinned(state):
    return state.get("cuMemAllocHost_v2", 4096)


@per_row
def freed_pinned(state):
    address = state.get("cuMemAllocHost_v2", 4096)
    state.driver.check("cuMemFreeHost", address)
    return address


@per_row
def registered(state):
    state.driver.check("cuMemHostRegister_v2", state["pages"], 65536, 0)
    state.at_end_of_row("cuMemHostUnregister", state["pages"])
    return state["pages"]


@shared
def managed(state):
    return state.get("cuMemAllocManaged", NUMBERS["memory_bytes"], 1)


@per_row
def new_managed(state):
    return state.get("cuMemAllocManaged", NUMBERS["memory_bytes"], 1)


@shared
def variable(state):
    return state.get("cuModuleGetGlobal_v2", state.arena.zeros(8), state["module"],
                     state["variable_name"])


@shared
def pool(state):
    return state.get("cuMemPoolCreate", state["pool_properties"])


@shared
def pool_properties(state):
    return Structures(state.arena).pool_of()


@per_row
def new_pool(state):
    return state.get("cuMemPoolCreate", state["pool_properties"])


@per_row
def destroyed_pool(state):
    handle = state.get("cuMemPoolCreate", state["pool_properties"])
    state.driver.check("cuMemPoolDestroy", handle)
    return handle


@shared
def default_pool(state):
    return state.get("cuDeviceGetDefaultMemPool", 0)


@per_row
def pooled(state):
    """Memory of a pool."""
    return state.get("cuMemAllocAsync", 4096, state["stream"])


@per_row
def freed_pooled(state):
    address = state.get("cuMemAllocAsync", 4096, state["stream"])
    state.driver.check("cuMemFreeAsync", address, state["stream"])
    state.driver.check("cuStreamSynchronize", state["stream"])
    return address


@shared
def physical_memory(state):
    """A handle of 2 MiB of memory that can be exported as a file."""
    return state.get("cuMemCreate", NUMBERS["unit"], Structures(state.arena).physical(), 0)


@per_row
def new_physical_memory(state):
    return state.get("cuMemCreate", NUMBERS["unit"], Structures(state.arena).physical(), 0)


@per_row
def destroyed_physical_memory(state):
    handle = state.get("cuMemCreate", NUMBERS["unit"], Structures(state.arena).physical(), 0)
    state.driver.check("cuMemRelease", handle)
    return handle


@per_row
def reserved(state):
    """4 MiB of reserved addresses."""
    address = state.get("cuMemAddressReserve", 2 * NUMBERS["unit"], 0, 0, 0)
    state.at_end_of_row("cuMemAddressFree", address, 2 * NUMBERS["unit"])
    return address


@per_row
def freed_reserved(state):
    address = state.get("cuMemAddressReserve", 2 * NUMBERS["unit"], 0, 0, 0)
    state.driver.check("cuMemAddressFree", address, 2 * NUMBERS["unit"])
    return address


@per_row
def mapping(state):
    """Reserved addresses whose first 2 MiB are mapped and have no access."""
    address = state["reserved"]
    state.driver.check("cuMemMap", address, NUMBERS["unit"], 0, state["physical_memory"], 0)
    state.at_end_of_row("cuMemUnmap", address, NUMBERS["unit"])
    return address


@per_row
def accessible(state):
    """Reserved addresses whose first 2 MiB are mapped for the device."""
    address = state["mapping"]
    state.driver.check("cuMemSetAccess", address, NUMBERS["unit"],
                       Structures(state.arena).access(), 1)
    return address


@per_row
def file(state):
    """A file of exported memory."""
    return state.get("cuMemExportToShareableHandle", state["physical_memory"], 1, 0) & 0xFFFF_FFFF


@shared
def plain_file(state):
    return os.open(HERE / "kernels.ptx", os.O_RDONLY)


@shared
def memory_handle(state):
    """The IPC handle of this process's own memory."""
    handle = ByValue64()
    state.driver.check("cuIpcGetMemHandle", ctypes.addressof(handle), state["memory"])
    return handle


@shared
def event_handle(state):
    handle = ByValue64()
    address = ctypes.addressof(handle)
    state.driver.check("cuIpcGetEventHandle", address, state["shareable_event"])
    return handle


@shared
def forged_handle(state):
    return ByValue64()


# Graphs.


def make_graph(state):
    handle = state.get("cuGraphCreate", 0)
    return handle


@shared
def graph(state):
    return make_graph(state)


@per_row
def new_graph(state):
    return make_graph(state)


@per_row
def destroyed_graph(state):
    handle = make_graph(state)
    state.driver.check("cuGraphDestroy", handle)
    return handle


def add(state, kind, *arguments, graph="graph"):
    return state.get(f"cuGraphAdd{kind}", state[graph], 0, 0, *arguments)


@shared
def kernel_node_parameters(state):
    return Structures(state.arena).kernel_node(state["function"], state["parameters"])


@shared
def copy_parameters(state):
    return Structures(state.arena).copy_3d(state["memory"], state["pinned"])


@shared
def fill_parameters(state):
    return Structures(state.arena).fill_node(state["memory"])


@shared
def host_parameters(state):
    return Structures(state.arena).host_node(state["callback"])


@shared
def batch_parameters(state):
    structures = Structures(state.arena)
    return structures.batch_node(structures.operation(state["memory"]), context=state["context"])


@shared
def kernel_vertex(state):
    return add(state, "KernelNode_v2", state["kernel_node_parameters"])


@shared
def copy_vertex(state):
    return add(state, "MemcpyNode", state["copy_parameters"], state["context"])


@shared
def fill_vertex(state):
    return add(state, "MemsetNode", state["fill_parameters"], state["context"])


@shared
def host_vertex(state):
    return add(state, "HostNode", state["host_parameters"])


@shared
def batch_vertex(state):
    return add(state, "BatchMemOpNode", state["batch_parameters"])


@shared
def empty_vertex(state):
    return add(state, "EmptyNode")


@shared
def second_vertex(state):
    return add(state, "EmptyNode")


@per_row
def new_vertex(state):
    return add(state, "EmptyNode")


@per_row
def destroyed_vertex(state):
    handle = add(state, "EmptyNode")
    state.driver.check("cuGraphDestroyNode", handle)
    return handle


@shared
def foreign_graph(state):
    return make_graph(state)


@shared
def foreign_vertex(state):
    """A node of another graph."""
    return add(state, "EmptyNode", graph="foreign_graph")


@shared
def record_vertex(state):
    return add(state, "EventRecordNode", state["event"])


@shared
def wait_vertex(state):
    return add(state, "EventWaitNode", state["event"])


@shared
def child_graph(state):
    handle = make_graph(state)
    state.get("cuGraphAddEmptyNode", handle, 0, 0)
    return handle


@shared
def child_node(state):
    """The node of the graph `child_graph`."""
    nodes = state.arena.zeros(8)
    state.driver.check("cuGraphGetNodes", state["child_graph"], nodes, state.arena.array(1))
    return read_word(nodes)


@shared
def clone(state):
    return state.get("cuGraphClone", state["child_graph"])


@shared
def record_graph(state):
    """A graph of one node, which records an event."""
    handle = make_graph(state)
    state.get("cuGraphAddEventRecordNode", handle, 0, 0, state["event"])
    return handle


@per_row
def edged_graph(state):
    """A graph of two nodes, of which the second depends on the first."""
    return make_graph(state)


@per_row
def edge_start(state):
    return add(state, "EmptyNode", graph="edged_graph")


@per_row
def edge_end(state):
    start = state.arena.array(state["edge_start"])
    return state.get("cuGraphAddEmptyNode", state["edged_graph"], start, 1)


@shared
def child_vertex(state):
    return add(state, "ChildGraphNode", state["child_graph"])


@shared
def executable(state):
    """An executable of a graph with a node of each kind."""
    for kind in ["kernel", "copy", "fill", "host", "batch", "empty", "record", "wait", "child"]:
        state[f"{kind}_vertex"]
    return state.get("cuGraphInstantiateWithFlags", state["graph"], 0)


@per_row
def new_executable(state):
    return state.get("cuGraphInstantiateWithFlags", state["child_graph"], 0)


@per_row
def destroyed_executable(state):
    handle = state.get("cuGraphInstantiateWithFlags", state["child_graph"], 0)
    state.driver.check("cuGraphExecDestroy", handle)
    return handle


# Faults. A row that names one of these needs a process of its own.


def launch(state, function, parameters):
    state.driver.check("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, state["stream"],
                       parameters, 0)
    return state["stream"]


def store_at(state, address):
    arena = state.arena
    parameters = arena.array(arena.array(address), arena.words(7))
    return launch(state, state["function"], parameters)


@per_row
def faulted(state):
    """A stream whose kernel has written to memory that nobody has, which the stream has seen."""
    for name in ["memory", "module", "event", "new_stream", "empty"]:
        state[name]
    stream = store_at(state, 1 << 46)
    if state.driver.call("cuStreamSynchronize", stream) == 0:
        raise SetupFailed("cuStreamSynchronize of a fault 0")
    return stream


@per_row
def misaligned(state):
    """A stream whose kernel writes a word to an odd address."""
    return store_at(state, state["memory"] + 1)


@per_row
def trapped(state):
    """A stream whose kernel traps."""
    return launch(state, state["stop"], 0)
