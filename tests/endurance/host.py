"""Reads from /proc and from folders what processes use and what they have left behind."""

import os
import pathlib
import time

from flat import Failure

# Longest time that anything may take that a trial waits for.
PATIENCE_S = 60
SHARED_MEMORY = pathlib.Path("/dev/shm")
INSTANCES = pathlib.Path("/sys/kernel/tracing/instances")
KVM = pathlib.Path("/sys/kernel/debug/kvm")
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def wait_until(what, condition):
    """Waits until `condition` holds, and returns its value. Fails after a deadline, with the text
    that `what` returns."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Failure(f"{what()} (waited {PATIENCE_S} s)")
        time.sleep(0.002)
    return value


def read(path):
    """Returns a file's text; an empty one if it is gone, as files of ended processes are."""
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def names(folder):
    """Returns the names in a folder; none if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def fields(path):
    """Returns the numbers of a file with lines such as `VmRSS:   123 kB`."""
    pairs = (line.split(":", 1) for line in read(path).splitlines() if ":" in line)
    words = {name: value.split() for name, value in pairs}
    return {name: int(value[0]) for name, value in words.items() if value and value[0].isdigit()}


def parents():
    """Returns process -> parent, for all processes."""
    found = {}
    for name in filter(str.isdigit, names("/proc")):
        # State and parent follow the name in parentheses.
        after = read(f"/proc/{name}/stat").rpartition(")")[2].split()
        if after:
            found[int(name)] = int(after[1])
    return found


def descendants(root, without=()):
    """Returns the processes below `root`, without those in `without` and below them."""
    table = parents()
    below, size = {root}, 0
    while size != len(below):
        size = len(below)
        below |= {pid for pid, parent in table.items() if parent in below and pid not in without}
    return below - {root}


def arguments(pid):
    return read(f"/proc/{pid}/cmdline").split("\0")[:-1]


def workers(pid):
    """Returns VM -> worker processes, for the worker processes of a VMM. The last argument of a
    worker is the number of its VM. A VM that has lost a worker can have a spare one, too."""
    found = {}
    for child, parent in sorted(parents().items()):
        words = arguments(child) if parent == pid else []
        if len(words) > 2 and words[1] == "worker":
            found.setdefault(int(words[-1]), []).append(child)
    return found


def usage(pid):
    """Returns what a process uses. Shared memory, such as guest RAM, is a figure of its own."""
    status = fields(f"/proc/{pid}/status")
    if "RssAnon" not in status:
        return {}
    return {
        "memory KiB": status["RssAnon"] + status["RssFile"],
        "shared memory KiB": status["RssShmem"],
        "descriptors": len(names(f"/proc/{pid}/fd")),
        "mappings": len(read(f"/proc/{pid}/maps").splitlines()),
        "threads": status["Threads"],
    }


def host_usage():
    """Returns what all processes of the host and its kernel use."""
    memory = fields("/proc/meminfo")
    sockets = read("/proc/net/sockstat").split()
    return {
        "host memory MiB": (memory["MemTotal"] - memory["MemAvailable"]) // 1024,
        "host shared memory MiB": memory["Shmem"] // 1024,
        "host files": int(read("/proc/sys/fs/file-nr").split()[0]),
        "host sockets": int(sockets[2]) if len(sockets) > 2 else None,
        "kernel slab MiB": memory["Slab"] // 1024,
    }


# The host may do other things meanwhile, and its memory is not only ours.
HOST_TOLERANCES = {
    "host memory MiB": 1024,
    "host shared memory MiB": 64,
    "host files": 1000,
    "host sockets": 500,
    "kernel slab MiB": None,
}


def traces(folders, pids, without=()):
    """Returns what processes can leave, as pairs of what it is and its name: processes below this
    one but for those in `without`, files in `folders`, and objects of the kernel. `pids` are the
    processes whose locks and virtual machines are looked for."""
    found = set()
    for pid in descendants(os.getpid(), without):
        if not reap(pid):
            found.add(("process", f"{pid} ({' '.join(arguments(pid)) or 'no arguments'})"))
    for folder in folders:
        for place, below, files in os.walk(folder):
            found |= {("file", os.path.join(place, name)) for name in below + files}
    found |= {("shared memory", name) for name in names(SHARED_MEMORY)}
    found |= {("trace instance", name) for name in names(INSTANCES)}
    found |= {("mount", line) for line in read("/proc/self/mountinfo").splitlines()}
    found |= {("control group", name) for name in names(CGROUPS) if "causeway" in name}
    owners = {str(pid) for pid in pids}
    for line in read("/proc/locks").splitlines():
        words = line.split()
        if len(words) > 4 and words[4] in owners:
            found.add(("lock", line))
    # Folders of KVM are called after the process and the descriptor.
    found |= {("VM of KVM", name) for name in names(KVM) if name.split("-")[0] in owners}
    return found


def reap(pid):
    """Returns whether a process has ended. Orphans become children of this process, which
    otherwise would stay as zombies."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not os.path.exists(f"/proc/{pid}")
