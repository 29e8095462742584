"""Marks phases of a guest by `causeway-info`, so that the host counts their exits apart.

On a machine without the tool in the current folder, nothing is marked.
"""

import contextlib
import os
import subprocess

TOOL = "./causeway-info"
# tinygrad's JIT records the second call and replays it from the third on.
WARM_UP = 4


@contextlib.contextmanager
def phase(name, operations=0, path="data"):
    """A phase with this number of operations, of the data path or the control path."""
    mark("begin", "--path", path, name)
    yield
    mark("end", "--operations", str(operations))


def mark(*words):
    if os.access(TOOL, os.X_OK):
        subprocess.run([TOOL, "phase", *words], check=True)


def repeat(name, times, work, operations_each=2):
    """Calls `work` in a phase of the data path, after some calls before it."""
    for _ in range(WARM_UP):
        work()
    with phase(name, times * operations_each):
        for _ in range(times):
            work()
