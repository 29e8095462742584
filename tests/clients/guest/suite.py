#!/usr/bin/env python3
"""Runs a client's own tests, unmodified, in a guest: twice, each time in a phase of its own.

    python3 suite.py MODULE [MODULE...]

Both are of the control path: tests allocate memory and load modules. The second run finds what the
client and the driver library have kept. What the tests print goes to a file, because the console
takes exits. Prints how many tests passed, failed and were skipped, and the names of those that
failed.
"""

import contextlib
import io
import json
import os
import sys

TESTS = "/clients/tests"
sys.path[:0] = [TESTS]
import run_unittest
from phases import phase


@contextlib.contextmanager
def silence():
    """Sends what this process and its children print to a file."""
    sys.stdout.flush()
    kept = [os.dup(number) for number in (1, 2)]
    with open("/tmp/printed", "ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        yield
    sys.stdout.flush()
    for number, copy in enumerate(kept, 1):
        os.dup2(copy, number)
        os.close(copy)


def run(modules):
    """Runs the test cases of the modules. Returns test -> result, as run_unittest writes them."""
    lines = io.StringIO()
    suite = run_unittest.unittest.defaultTestLoader.loadTestsFromNames(modules)
    suite.run(run_unittest.Recorder(lines))
    results = map(json.loads, lines.getvalue().splitlines())
    return {result["test"]: result for result in results}


def main():
    modules = sys.argv[1:]
    with silence():
        with phase("first run", path="control"):
            first = run(modules)
        with phase("second run", path="control"):
            second = run(modules)
    for name, results in ("first", first), ("second", second):
        kinds = [result["result"] for result in results.values()]
        counts = [f"{kinds.count(kind)} {kind}" for kind in ("passed", "failed", "skipped")]
        print(f"{name} run: {', '.join(counts)}")
    for result in first.values():
        if result["result"] == "failed":
            print(f"{result['test']}: {result['reason'][:200]}")


main()
