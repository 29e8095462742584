"""The clients: what is installed, which of their tests run, and how."""

import copy
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import venv

import results
from cuda_core_tests import CudaCore
from pycuda_tests import Pycuda

HERE = pathlib.Path(__file__).resolve().parent

TINYGRAD = "tinygrad-0.14.0"
TINYGRAD_REPOSITORY = "https://github.com/tinygrad/tinygrad"
TINYGRAD_COMMIT = "a9069c177a9da9cca18593edf55acd2e6073cca6"  # some days behind 0.14.0
CUDARC = "cudarc-0.19.10"
CUDARC_SHA256 = "7359bf1de037ddada72729c3acec9b040f3468400c6e9e740b01ba0cd2e89562"
CUDARC_FEATURES = "std,driver,nvrtc,dynamic-loading,cuda-12090,f16"

# These compare times of a GPU, which a processor's differ from by chance.
CUDARC_TIMINGS = [
    "test_pinned_copy_is_faster",
    "test_default_pinned_host_reads_are_faster_than_write_combined",
    "test_par_launch",
]


class Missing(Exception):
    """The machine lacks something that the run needs."""


class Packages:
    """The clients' packages, in a virtual environment or with an interpreter that has them."""

    def __init__(self, work, python=None):
        self.work = work.resolve()
        self.python = python or self.work / "venv/bin/python"
        self.environment = dict(os.environ, PYTHONNOUSERSITE="1")
        self.environment["XDG_CACHE_HOME"] = str(self.work / "cache")
        if not python:
            self.environment.pop("PYTHONPATH", None)
            self.install()

    def install(self):
        """Makes the virtual environment anew if requirements.txt has changed."""
        wanted = (HERE / "requirements.txt").read_text(encoding="utf-8")
        mark = self.work / "venv/installed.txt"
        if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
            return
        if sys.version_info[:2] != (3, 11):
            raise Missing(f"the versions are those of Python 3.11, and this is {sys.version}")
        venv.create(self.work / "venv", clear=True, with_pip=True)
        # Without dependencies: nvJitLink stays out, so that numba emits PTX.
        self.pip("install", "--no-deps", "-r", HERE / "requirements.txt")
        mark.write_text(wanted, encoding="utf-8")

    def pip(self, *arguments):
        must([self.python, "-m", "pip", "-q", *arguments], "packages from PyPI")


class Setup(Packages):
    """Where things lie: the command, the Python interpreter, results."""

    def __init__(self, options):
        super().__init__(options.work, options.python)
        self.results = self.work / "results"
        shutil.rmtree(self.results, ignore_errors=True)
        gpu = ["--gpu", options.gpu] if options.gpu else []
        self.has_machine_code = (options.gpu or "").startswith("cuda")
        self.given_python, self.cuda_python = options.python, options.cuda_python
        self.prefix = [options.binary.resolve(), "cuda", "--processes", "16", *gpu, "--"]

    def native(self):
        """The same without Causeway: programs find the machine's own driver library."""
        native = copy.copy(self)
        native.prefix, native.results = [], self.work / "results/native"
        return native

    def nvrtc(self):
        """Where the environment has NVRTC: tinygrad looks only where a system would have it, and
        writes PTX itself if there is none."""
        libraries = "venv/lib/*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.*"
        found = next(self.work.glob(libraries), None)
        if not found:
            return {}
        headers = found.parents[2] / "cuda_runtime"
        return {"NVRTC_PATH": str(found), "CUDA_PATH": str(headers)}

    def start(self, name, command, directory, environment, limit_s):
        """Runs a command behind the prefix. Returns its exit status, -1 after the limit."""
        log = self.results / f"{name}.log"
        variables = {**self.environment, **environment, "CAUSEWAY_CUDA_LOG": str(log)}
        with open(self.results / f"{name}.out", "wb") as out:
            program = [*self.prefix, *command]
            child = subprocess.Popen(program, cwd=directory, env=variables, stdout=out, stderr=out)
            try:
                return child.wait(limit_s)
            except subprocess.TimeoutExpired:
                return stop(child)


def stop(child):
    """Ends the command, which ends its program. Returns -1."""
    child.terminate()
    try:
        child.wait(30)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    return -1


def must(command, what, **options):
    try:
        subprocess.run(command, check=True, **options)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{what} are missing, or cannot be fetched or built: {error}") from error


def unpack(archive, directory):
    shutil.rmtree(directory, ignore_errors=True)
    with tarfile.open(archive) as file:
        file.extractall(directory.parent, filter="data")


class Unittest:
    """Modules of Python test cases. Each module has a process of its own."""

    limit_s = 180

    def __init__(self, name, parts, skips_max, environment, directory):
        self.name, self.parts, self.skips_max = name, parts, skips_max
        self.environment, self.directory = environment, directory

    def prepare(self, setup):
        if self.parts is None:
            self.parts = all_modules(setup)
        directory = setup.work / TINYGRAD
        # Its tests are in the archive of its source alone.
        if self.directory != "." and not directory.exists():
            package, version = TINYGRAD.split("-")
            setup.pip("download", "--no-deps", "--no-binary", ":all:", "-d", setup.work,
                      f"{package}=={version}")
            unpack(setup.work / f"{TINYGRAD}.tar.gz", directory)

    def run(self, setup, module):
        name = f"{self.name}.{module}"
        lines = setup.results / f"{name}.json"
        lines.touch()
        command = [setup.python, HERE / "run_unittest.py", lines, module]
        directory = setup.work / self.directory
        compiler = setup.nvrtc() if self.environment.get("DEV") == "CUDA" else {}
        environment = {**compiler, **self.environment}
        status = setup.start(name, command, directory, environment, self.limit_s)
        return results.recorded(module, lines, status)


class Cudarc:
    """The crate's unit tests of the driver API and NVRTC, in one process."""

    name, parts, skips_max, limit_s = "cudarc", ["driver,nvrtc"], 5, 300

    def prepare(self, setup):
        self.libraries = setup.work / "cudarc-libraries"
        self.program = setup.work / f"{CUDARC}-tests"
        if not self.program.exists():
            self.build(setup)
            self.link_libraries(setup)

    def build(self, setup):
        directory = setup.work / CUDARC
        if not directory.exists():
            unpack(self.crate(setup), directory)
        features = ["--no-default-features", "--features", CUDARC_FEATURES]
        target = dict(os.environ, CARGO_TARGET_DIR=str(setup.work / "cudarc-target"))
        command = ["cargo", "test", "-q", "--locked", "--lib", "--no-run", *features]
        must(command, "cargo and crates from crates.io", cwd=directory, env=target)
        deps = setup.work / "cudarc-target/debug/deps"
        programs = [p for p in deps.glob("cudarc-*") if not p.suffix]
        os.link(max(programs, key=lambda path: path.stat().st_mtime), self.program)

    def link_libraries(self, setup):
        """Links NVRTC of the virtual environment by the names that the crate looks for."""
        self.libraries.mkdir(exist_ok=True)
        compilers = "lib/*/site-packages/nvidia/cuda_nvrtc/lib/*.so.*"
        for library in (setup.work / "venv").glob(compilers):
            for name in (library.name, re.sub(r"\.so\..*", ".so", library.name)):
                (self.libraries / name).unlink(missing_ok=True)
                (self.libraries / name).symlink_to(library)

    def crate(self, setup):
        archive = setup.work / f"{CUDARC}.crate"
        url = f"https://static.crates.io/crates/cudarc/{CUDARC}.crate"
        try:
            urllib.request.urlretrieve(url, archive)
        except OSError as error:
            raise Missing(f"{url} cannot be fetched: {error}") from error
        if hashlib.sha256(archive.read_bytes()).hexdigest() != CUDARC_SHA256:
            raise Missing(f"{archive} is not the crate of this name: its SHA-256 differs")
        return archive

    def run(self, setup, part):
        skips = [word for test in CUDARC_TIMINGS for word in ("--skip", test)]
        # One at a time: streams of all tests share a few rings, where a long kernel of one test
        # holds up the streams of another, which counts on its own to overlap.
        command = [self.program, "--test-threads=1", *skips]
        folders = [str(self.libraries), setup.environment.get("LD_LIBRARY_PATH", "")]
        environment = {"LD_LIBRARY_PATH": ":".join(filter(None, folders))}
        status = setup.start(self.name, command, setup.work, environment, self.limit_s)
        output = (setup.results / f"{self.name}.out").read_text(errors="replace")
        words = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
        found = re.findall(r"^test (\S+) .*?\.\.\. (ok|FAILED|ignored)", output, re.MULTILINE)
        tests = {test: (words[result], "see cudarc.out") for test, result in found}
        # Rust's test programs end with 101 if a test fails, and print a summary in any case.
        if status not in (0, 101) or "test result:" not in output or not tests:
            tests[part] = ("failed", f"the program ended with exit status {status}")
        return tests


class Repository(Unittest):
    """Test modules that are in the client's repository alone."""

    limit_s = 1800
    # What they import and the client does not need.
    packages = ["torch", "hypothesis", "pytest"]

    def prepare(self, setup):
        if not (setup.work / self.directory).exists():
            raise Missing(f"the tests of {self.name} are missing: git clone {TINYGRAD_REPOSITORY} "
                          f"{setup.work / self.directory}, and check {TINYGRAD_COMMIT} out")
        missing = printed_by(setup, MISSING, *self.packages)
        if missing != "":
            names = missing or " ".join(self.packages)
            raise Missing(f"the tests of {self.name} need {names}: {setup.python} -m pip install "
                          f"{names}")


# Programs for the interpreter that runs the clients.
MISSING = ("import importlib.util as u, sys\n"
           "print(*(name for name in sys.argv[1:] if not u.find_spec(name)))")
NUMBA_CUDA = ("import importlib.util as u\n"
              "found = u.find_spec('numba_cuda')\n"
              "print(*(found.submodule_search_locations if found else []))")


def printed_by(setup, program, *arguments):
    """Returns what a Python program prints, None if it fails."""
    command = [setup.python, "-c", program, *arguments]
    shown = subprocess.run(command, env=setup.environment, stdout=subprocess.PIPE, text=True)
    return shown.stdout.strip() if shown.returncode == 0 else None


def all_modules(setup):
    """Returns the names of all test modules of numba-cuda as it is installed."""
    package = printed_by(setup, NUMBA_CUDA)
    if not package:
        raise Missing(f"{setup.python} has no package numba-cuda")
    files = sorted(pathlib.Path(package).glob("numba/cuda/tests/cuda*/test_*.py"))
    return [f"numba.cuda.tests.{file.parent.name}.{file.stem}" for file in files]


def modules(name):
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


CLIENTS = [
    Unittest("tinygrad-cuda", ["test_tiny"], 2, {"DEV": "CUDA"}, f"{TINYGRAD}/test"),
    Unittest("tinygrad-ptx", ["test_tiny"], 2, {"DEV": "CUDA:PTX"}, f"{TINYGRAD}/test"),
    Cudarc(),
    Unittest("nvidia-ml-py", ["nvml_calls"], 0, {}, HERE),
    Unittest("numba-cuda", modules("numba-cuda.txt"), 39, {}, "."),
]

# Take longer than a run in CI should, or need more than PyPI has.
TINYGRAD_TESTS = [f"test.backend.{name}" for name in (
    "test_ops", "test_uops", "test_jit", "test_dtype_alu", "test_dtype", "test_nn", "test_optim",
    "test_graph", "test_randomness", "test_tensor", "test_transcendental", "test_subbuffer",
    "test_softmax_fusion", "test_symbolic_ops", "test_symbolic_jit", "test_setitem")]
LONG_CLIENTS = [
    Repository("tinygrad-cuda-all", TINYGRAD_TESTS, 200, {"DEV": "CUDA"}, "tinygrad-repository"),
    Repository("tinygrad-ptx-all", TINYGRAD_TESTS, 200, {"DEV": "CUDA:PTX"}, "tinygrad-repository"),
    Unittest("numba-cuda-all", None, 81, {}, "."),
    Pycuda(Missing),
    CudaCore(Missing),
]
