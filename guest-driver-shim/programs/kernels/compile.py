#!/usr/bin/env python3
"""Compiles kernels/*.cu to ptx/*.ptx with NVRTC. No GPU and no CUDA toolkit are needed:

    python3 -m venv ~/nvrtc
    ~/nvrtc/bin/pip install 'nvidia-cuda-nvrtc-cu12==12.9.*' 'nvidia-cuda-runtime-cu12==12.9.*'
    ~/nvrtc/bin/python guest-driver-shim/programs/kernels/compile.py            # writes ptx/
    ~/nvrtc/bin/python guest-driver-shim/programs/kernels/compile.py --check    # compares with what is committed

NVRTC 12.9 writes PTX 8.8, which every driver since CUDA 12.9 accepts. Products and sums are not
contracted (`--fmad=false`): where a kernel wants a fused multiply-add it says so, and the reference
in Rust can be equal bit by bit.
"""

import argparse
import ctypes
import difflib
import pathlib
import sys

OPTIONS = ["--gpu-architecture=compute_70", "--fmad=false", "--std=c++17", "-default-device"]
HERE = pathlib.Path(__file__).resolve().parent


def find_package(name):
    """The directory of a part of the `nvidia` packages in this Python's site-packages."""
    for entry in sys.path:
        directory = pathlib.Path(entry) / "nvidia" / name
        if directory.is_dir():
            return directory
    sys.exit(f"nvidia/{name} is not installed in this Python; see the head of {__file__}")


class Nvrtc:
    """The few calls of NVRTC that compile one source."""

    def __init__(self):
        library = sorted((find_package("cuda_nvrtc") / "lib").glob("libnvrtc.so.*"))[0]
        self.library = ctypes.CDLL(str(library))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {self.library.nvrtcGetErrorString(code).decode()}")

    def text(self, what, program):
        """A text of the program by the pair of calls nvrtcGet<what>Size and nvrtcGet<what>."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.value.decode()

    def compile(self, name, source, options):
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        try:
            words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            self.call("nvrtcCompileProgram", program, len(options), words)
            return self.text("PTX", program)
        except RuntimeError as error:
            sys.exit(f"{name}: {error}\n{self.text('ProgramLog', program)}")
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))


def main():
    parser = argparse.ArgumentParser(description="Compile the test kernels from CUDA C to PTX.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a committed file differs")
    check = parser.parse_args().check
    nvrtc = Nvrtc()
    options = OPTIONS + [f"--include-path={find_package('cuda_runtime') / 'include'}"]
    differing = 0
    for source in sorted((HERE / "kernels").glob("*.cu")):
        target = HERE / "ptx" / f"{source.stem}.ptx"
        ptx = nvrtc.compile(source.name, source.read_text(), options)
        old = target.read_text() if target.exists() else ""
        if check and old != ptx:
            differing += 1
            sys.stdout.writelines(difflib.unified_diff(
                old.splitlines(True), ptx.splitlines(True), f"committed {target.name}", f"compiled {target.name}"))
        elif not check:
            target.write_text(ptx)
            print(f"{target.name}: {len(ptx)} bytes")
    sys.exit(f"{differing} files differ" if differing else 0)


if __name__ == "__main__":
    main()
