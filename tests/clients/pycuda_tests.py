"""PyCUDA and its own tests: built from its source, with an `nvcc` that emits PTX."""

import pathlib
import shutil
import subprocess
import tarfile
import venv
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE, VERSION = "pycuda", "2026.1"

# What PyCUDA's configure.py would write: where CUDA's headers and libraries are.
CONFIGURATION = """\
BOOST_INC_DIR = BOOST_LIB_DIR = BOOST_PYTHON_LIBNAME = BOOST_THREAD_LIBNAME = []
USE_SHIPPED_BOOST = True
CUDA_ROOT = {cuda!r}
CUDA_ENABLE_GL = CUDA_TRACE = False
CUDA_ENABLE_CURAND = True
CUDADRV_LIB_DIR = CURAND_LIB_DIR = [{libraries!r}]
CUDADRV_LIBNAME, CURAND_LIBNAME = ["cuda"], ["curand"]
CUDART_LIB_DIR = CUDART_LIBNAME = []
CXXFLAGS = ["-O0", "-g0", "-I{cuda}/include"]
LDFLAGS = ["-Wl,-rpath,{cuda}/lib"]
"""


class Pycuda:
    """Modules of pytest cases. Each module has a process of its own."""

    name, limit_s = "pycuda", 1200
    parts, skips_max = ["test_driver", "test_cumath", "test_gpuarray"], 25

    def __init__(self, missing):
        self.missing = missing

    def prepare(self, setup):
        self.folder = setup.work / f"{PACKAGE}-{VERSION}"
        self.python = setup.work / "pycuda-venv/bin/python"
        mark = setup.work / "pycuda-venv/installed.txt"
        wanted = (HERE / "pycuda-requirements.txt").read_text(encoding="utf-8")
        if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
            return
        try:
            self.build(setup)
        except (OSError, subprocess.CalledProcessError) as error:
            raise self.missing(f"PyCUDA cannot be fetched or built: {error}") from error
        mark.write_text(wanted, encoding="utf-8")

    def build(self, setup):
        venv.create(setup.work / "pycuda-venv", clear=True, with_pip=True)
        pip = [self.python, "-m", "pip", "-q"]
        requirements = HERE / "pycuda-requirements.txt"
        subprocess.run([*pip, "install", "--no-deps", "-r", requirements], check=True)
        source = ["--no-deps", "--no-build-isolation", "--no-binary", PACKAGE]
        wanted = f"{PACKAGE}=={VERSION}"
        subprocess.run([*pip, "download", *source, "-d", setup.work, wanted], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        with tarfile.open(setup.work / f"{self.folder.name}.tar.gz") as archive:
            archive.extractall(setup.work, filter="data")
        libraries = self.link_libraries(setup)
        text = CONFIGURATION.format(cuda=str(self.cuda()), libraries=str(libraries))
        (self.folder / "siteconf.py").write_text(text, encoding="utf-8")
        build = ["install", "--no-deps", "--no-build-isolation", self.folder]
        subprocess.run([*pip, *build], check=True)

    def cuda(self):
        """The folder with NVIDIA's compiler, headers and libraries."""
        found = self.python.parent.parent.glob("lib/*/site-packages/nvidia/cu13")
        return next(found).resolve()

    def link_libraries(self, setup):
        """Puts libraries where the linker looks for them by names without a version."""
        libraries = setup.work / "pycuda-libraries"
        libraries.mkdir(exist_ok=True)
        install = [*setup.prefix[:2], "--install", libraries]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        curand = libraries / "libcurand.so"
        curand.unlink(missing_ok=True)
        curand.symlink_to(next((self.cuda() / "lib").glob("libcurand.so.*")))
        return libraries

    def run(self, setup, module):
        name = f"{self.name}.{module}"
        report = setup.results / f"{name}.xml"
        path = f"{HERE / 'pycuda'}:{setup.environment['PATH']}"
        environment = {"PATH": path, "CAUSEWAY_TESTS_NVCC": str(self.cuda() / "bin/nvcc")}
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command = [self.python, "-m", "pytest", *options, f"{module}.py"]
        status = setup.start(name, command, self.folder / "test", environment, self.limit_s)
        tests = results_of(report) if report.exists() else {}
        # pytest ends with 1 if a test fails.
        if status not in (0, 1) or not tests:
            tests[module] = ("failed", f"the module ended with exit status {status}")
        return tests


def results_of(report):
    """Returns test -> (result, reason). A test that may fail, and fails, is skipped."""
    tests = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        test = f"{case.get('classname').removeprefix('test.')}.{case.get('name')}"
        found = {child.tag: child.get("message", "") for child in case}
        bad = [tag for tag in ("failure", "error") if tag in found]
        if bad:
            tests[test] = ("failed", found[bad[0]])
        elif "skipped" in found:
            tests[test] = ("skipped", found["skipped"])
        else:
            tests[test] = ("passed", "")
    return tests
