"""Processes that make the calls: a row that ends its process costs only its own result."""

import concurrent.futures
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time

from driver import Driver, SetupFailed
from state import State

#: Seconds in which a process starts, and in which it answers a row.
START_S, ROW_S = 120, 10
#: Seconds between two notes of the results so far.
NOTE_S = 10
#: Rows that one process makes in turn.
BATCH_ROWS = 60


def run_row(state, row):
    """Makes one call and returns what it answered."""
    expressions = [compile(text, row.name, "eval") for text in row.arguments]
    # What is freed for the row is made last, so that nothing else gets its place.
    names = [name for code in expressions for name in code.co_names]
    for name in sorted(names, key=lambda name: name.startswith(("freed", "destroyed"))):
        state[name]
    arguments = [eval(code, {"__builtins__": {}}, state) for code in expressions]
    if row.last:
        state[row.last]
    return state.driver.call(row.function, *arguments)


def serve(library, rows):
    """Makes the calls of `rows` in this process, and tells a parent on standard output."""
    state = State(Driver(library))
    try:
        state.start()
    except SetupFailed as failed:
        print(f"failed {failed}", flush=True)
        return
    print("ready", flush=True)
    for row in rows:
        print(f"begin {row.name}", flush=True)
        try:
            result = run_row(state, row)
        except SetupFailed as failed:
            result = f"setup {failed}"
        except AttributeError:
            result = "missing"
        print(f"end {result}", flush=True)
        if not state.end_row():
            print("broken", flush=True)
            break
    sys.stdout.flush()
    os._exit(0)


class Child:
    """A process that makes calls, seen from its parent."""

    def __init__(self, library, rows, log):
        here = os.path.dirname(os.path.abspath(__file__))
        command = [sys.executable, os.path.join(here, "run"), "--library", library, "--child"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=log)
        # So few rows fit into the pipe.
        with contextlib.suppress(BrokenPipeError), self.process.stdin:
            self.process.stdin.write("".join(f"{row.name}\n" for row in rows).encode())
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.buffer = b""

    def line(self, seconds):
        """Returns the next line, "" at the end, or None if none comes in time."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            if not self.selector.select(max(0, deadline - time.monotonic())):
                return None
            read = os.read(self.process.stdout.fileno(), 65536)
            if not read:
                return ""
            self.buffer += read
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def end(self):
        """Ends the process. Returns how it ended, if it ended by itself."""
        try:
            status = self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.selector.close()
        self.process.stdout.close()
        return f"died {signal.Signals(-status).name}" if status < 0 else f"exited {status}"


def run_some(library, rows, log):
    """Makes calls in one process until it ends. Returns the results of the rows that it began."""
    child = Child(library, rows, log)
    results = {}
    started = child.line(START_S)
    if started != "ready":
        how = child.end()
        return {row.name: f"start {started or how}" for row in rows}
    name = None
    while True:
        line = child.line(ROW_S)
        if not line:
            how = child.end()
            if name is not None:
                results[name] = "hung" if line is None else how
            return results
        word, _, rest = line.partition(" ")
        if word == "begin":
            name = rest
        elif word == "end":
            results[name] = rest
            name = None


def run_batch(library, rows, log):
    """Makes calls in as many processes as they need."""
    results = {}
    while rest := [row for row in rows if row.name not in results]:
        some = run_some(library, rest, log)
        results.update(some or {rest[0].name: "died before the call"})
    return results


def run_all(library, rows, *, jobs, shares, log, note):
    """Makes all calls and returns their results by name, in the order of `rows`. With `shares`,
    rows with forged handles share processes too. Gives `note` the results so far now and then."""
    is_alone = {row: row.is_alone or (row.is_risky and not shares) for row in rows}
    others = [row for row in rows if not is_alone[row]]
    batches = [others[at:at + BATCH_ROWS] for at in range(0, len(others), BATCH_ROWS)]
    batches += [[row] for row in rows if is_alone[row]]
    results, noted = {}, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_batch, library, batch, log) for batch in batches]
        for future in concurrent.futures.as_completed(futures):
            results.update(future.result())
            if time.monotonic() - noted > NOTE_S:
                note(results)
                noted = time.monotonic()
    return {row.name: results[row.name] for row in rows}
