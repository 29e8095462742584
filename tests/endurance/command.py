"""Runs the command under test in folders of its own, and ends it whatever happens."""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import time

from flat import Failure
from host import PATIENCE_S, read, wait_until

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans():
    """Makes orphans of processes that this one starts its own children."""
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become the parent of orphans")


def prepare_child():
    """Runs in the child. Ctrl-C is for the script alone, and no child outlives the script."""
    os.setpgid(0, 0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Place:
    """Folders of commands: where they run, for sockets, for temporary files, for outputs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.work, self.runtime, self.temporary, self.outputs = (
            self.folder / name for name in ("work", "run", "tmp", "out")
        )
        for path in (self.work, self.runtime, self.temporary, self.outputs):
            path.mkdir(parents=True, mode=0o700)

    def watched(self):
        """Returns the folders in which commands must not leave anything."""
        return [self.work, self.runtime, self.temporary]

    def environment(self, **more):
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("CAUSEWAY_") and name != "RUST_LOG"
        }
        return {**kept, "TMPDIR": str(self.temporary), "XDG_RUNTIME_DIR": str(self.runtime), **more}

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Command:
    """A process under way. Leaving its context kills it and all processes of its group."""

    def __init__(self, place, words, name="command", stdin=subprocess.DEVNULL, **environment):
        self.words = [str(word) for word in words]
        self.out, self.err = (place.outputs / f"{name}.{end}" for end in ("out", "err"))
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                self.words,
                cwd=place.work,
                env=place.environment(**environment),
                stdin=stdin,
                stdout=out,
                stderr=err,
                preexec_fn=prepare_child,
            )
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def kill(self):
        """Kills the process at once. Returns whether it was still running."""
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait() == -signal.SIGKILL

    def end(self):
        """Waits for the end of the process, and returns its exit code."""
        wait_until(lambda: f"no end of {self}", lambda: self.process.poll() is not None)
        return self.process.returncode

    def passes(self):
        """Waits for the end of the process, which must be a success."""
        if self.end() != 0:
            raise Failure(f"exit code {self.process.returncode} of {self}")

    def says(self, text, times=1):
        """Waits until standard error has `text` so many times."""
        if not self.said(text, times, PATIENCE_S):
            raise Failure(f"no '{text}' in {PATIENCE_S} s from {self}")

    def said(self, text, times, limit_s):
        """Returns whether standard error has `text` so many times within the limit."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            has_ended = self.process.poll() is not None
            if read(self.err).count(text) >= times:
                return True
            if has_ended:
                raise Failure(f"exit code {self.process.returncode} before '{text}' of {self}")
            time.sleep(0.002)
        return False

    def __str__(self):
        last = "".join(f"\n    {line}" for line in read(self.err).splitlines()[-8:])
        return f"`{' '.join(self.words)}`, whose last words are:{last}"
