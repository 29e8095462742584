"""cuda.core and its own tests, which are in NVIDIA's repository cuda-python alone."""

import pathlib
import re
import subprocess
import venv

import results

HERE = pathlib.Path(__file__).resolve().parent

REPOSITORY = "https://github.com/NVIDIA/cuda-python"
COMMIT = "c23833b9793464194da9d9c82cd8f031711c47f5"  # cuda.core 1.1.0
# Needed by what links machine code. Without it the driver links, as it has to where code is PTX.
JITLINK = "nvidia-nvjitlink==13.0.88\n"
# What the tests share with those of other packages. None of them runs without it.
HELPERS = "cuda_python_test_helpers"
# Tests of the package's build, and what needs a compiler for Cython.
LEFT_OUT = ["test_build_hooks.py", "cython/"]


class CudaCore:
    """Files of pytest cases. Each file has a process of its own."""

    name, parts, skips_max = "cuda.core", [], 268
    # Of a file, of a test, and how often what follows a test that ended the process runs again.
    limit_s, test_limit_s, processes_max = 900, 120, 8

    def __init__(self, missing):
        self.missing = missing

    def prepare(self, setup):
        self.tests = self.checkout(setup.cuda_python) / "cuda_core/tests"
        files = (str(f.relative_to(self.tests)) for f in sorted(self.tests.rglob("test_*.py")))
        self.parts = [file for file in files if not file.startswith(tuple(LEFT_OUT))]
        self.python = setup.given_python or setup.work / "cuda-core-venv/bin/python"
        self.preload = []
        try:
            if not setup.given_python:
                self.install(setup)
            if not setup.has_machine_code:
                self.preload = [f"LD_PRELOAD={self.front_of_nvrtc(setup)}"]
        except (OSError, subprocess.CalledProcessError) as error:
            raise self.missing(f"cuda.core cannot be installed: {error}") from error

    def checkout(self, directory):
        """Returns the directory if it has the tests of the version that is installed."""
        if not directory:
            way = f"git clone {REPOSITORY}, git checkout {COMMIT[:9]}, and pass --cuda-python"
            raise self.missing(f"the tests of cuda.core are in its repository alone: {way}")
        directory = directory.resolve()
        found = commit_of(directory)
        if not found:
            raise self.missing(f"{directory} is no checkout of {REPOSITORY}")
        if found != COMMIT:
            way = f"git -C {directory} checkout {COMMIT}"
            raise self.missing(f"{directory} is at commit {found}: {way}")
        if not (directory / HELPERS).is_dir():
            why = f"has no {HELPERS}, which the tests load"
            raise self.missing(f"{directory} {why}: take the whole of {REPOSITORY}")
        return directory

    def install(self, setup):
        wanted = (HERE / "cuda-core-requirements.txt").read_text(encoding="utf-8")
        wanted += JITLINK if setup.has_machine_code else ""
        mark = setup.work / "cuda-core-venv/installed.txt"
        if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
            return
        venv.create(mark.parent, clear=True, with_pip=True)
        listed = mark.with_name("requirements.txt")
        listed.write_text(wanted, encoding="utf-8")
        pip = [self.python, "-m", "pip", "-q", "install", "--no-deps", "-r", listed]
        subprocess.run(pip, check=True)
        listed.rename(mark)

    def front_of_nvrtc(self, setup):
        """Builds what answers a request for machine code with PTX."""
        setup.work.mkdir(parents=True, exist_ok=True)
        library = setup.work / "libnvrtc-ptx.so"
        # It is loaded before NVRTC, whose functions it finds when it calls them.
        options = ["-shared", "-fPIC", "-Wl,-z,lazy", "-o", library]
        subprocess.run(["cc", *options, HERE / "cuda_core/nvrtc_ptx.c"], check=True)
        return library

    def run(self, setup, part):
        name = f"{self.name}.{part.replace('/', '.')}"
        lines = setup.results / f"{name}.json"
        lines.touch()
        options = ["-q", "--tb=short", "--no-showlocals", f"--timeout={self.test_limit_s}"]
        options += ["-p", "no:cacheprovider", "-p", "record", "--record", lines]
        command = ["env", *self.preload, self.python, "-m", "pytest", *options, part]
        path = [str(HERE / "cuda_core"), setup.environment.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": ":".join(filter(None, path)), "PYTHONDONTWRITEBYTECODE": "1"}
        for _ in range(self.processes_max):
            status = setup.start(name, command, self.tests, environment, self.limit_s)
            # pytest ends with 1 if a test fails, and with 5 if all others have results already.
            if status in (0, 1, 5):
                status = 0
                break
        return results.recorded(part, lines, status)


def commit_of(directory):
    """Returns the commit of a checkout, or of what `git archive` made of one."""
    archival = directory / ".git_archival.txt"
    text = archival.read_text(encoding="utf-8") if archival.exists() else ""
    noted = re.search(r"^node: (\w+)$", text, re.MULTILINE)
    if noted:
        return noted[1]
    command = ["git", "-C", directory, "rev-parse", "HEAD"]
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return shown.stdout.strip()
