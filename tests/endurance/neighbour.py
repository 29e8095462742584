"""The neighbour: a VM that verifies all its results, and what its report must say in the end.

The embedded guest `endurance` does that in VM 0, until its other VMs have ended. A VM whose device
is lost by the death of a worker process ends if the signal was SIGABRT, and else goes on.
"""

import json
import os
import signal

import host
from command import Command, Place
from flat import Failure, Series

LAST_SIGNAL = signal.SIGABRT
# Memory grows with what libraries keep. At the moment of a sample, guests have more memory of the
# device or less, and each allocation is shared memory, a descriptor and a mapping. After minutes
# the kernel (khugepaged) gathers the beginning of guest RAM into large pages: 4 MiB for each VM.
TOLERANCES = {
    "memory KiB": 4096,
    "shared memory KiB": 32768,
    "descriptors": 16,
    "mappings": 24,
    "threads": 6,
}


def guest(causeway, vms, *words):
    """Returns the command that runs the guest in so many VMs."""
    fixed = ["--guest", "endurance", "--vms", vms, "--memory", 64, "--timeout", "none"]
    return [causeway, "run", *fixed, "--json", "report.json", *words]


def report(place):
    path = place.work / "report.json"
    found = json.loads(path.read_text())
    path.unlink()
    return found


def signal_worker(vmm, worker, number):
    """Sends a signal to a worker process of a VMM. Returns whether it still is one."""
    try:
        # What the descriptor is of cannot change, unlike what the number is of.
        descriptor = os.pidfd_open(worker)
    except ProcessLookupError:
        return False
    try:
        if worker not in sum(host.workers(vmm).values(), []):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def end_losers(command, vms):
    """Ends all VMs but VM 0, whose end follows by itself."""
    for vm in range(1, vms):

        def ended(vm=vm):
            if f"vm{vm}| ended after" in host.read(command.err):
                return True
            if command.process.poll() is not None:
                raise Failure(f"exit code {command.process.returncode} of {command}")
            for process in host.workers(command.pid).get(vm, []):
                signal_worker(command.pid, process, LAST_SIGNAL)
            return False

        host.wait_until(lambda vm=vm: f"VM {vm} does not end: {command}", ended)
    command.passes()


def exits_once(found):
    """Returns the exits of VM 0 by cause, without those of its cycles, of which all have the same
    number."""
    phases = {phase["name"]: phase for phase in found["phases"] if phase["vm"] == 0}
    first, last = (phases[name]["vmm_exits"] for name in ("first cycle", "last cycle"))
    if first != last:
        raise Failure(f"exits of the neighbour's first cycle: {first}, of its last: {last}")
    cycles = figure(found, 0, "cycles")
    total = found["vms"][0]["vmm_exits"]
    return {cause: count - cycles * first.get(cause, 0) for cause, count in total.items()}


def figure(found, vm, name):
    """Returns a figure that a guest has reported."""
    values = [one["value"] for one in found["ratios"] if one["vm"] == vm and one["name"] == name]
    if len(values) != 1:
        raise Failure(f"VM {vm} reported '{name}' {len(values)} times")
    return round(values[0])


def verify(found, usual):
    """Checks that VM 0 of a report has passed and was not disturbed. Returns its figures."""
    vm = found["vms"][0]
    wanted = {
        "passed": (vm["passed"], True),
        "faults": (vm["session"]["faults"], 0),
        "the fault of a lost session": (vm["session"].get("fault"), None),
        "restarts of its worker": (vm.get("worker_restarts") or 0, 0),
        "exits of its data path": (vm["data_path_exits"], 0),
        "strays": (sum(vm["strays"].values()), 0),
    }
    for what, (seen, right) in wanted.items():
        if seen != right:
            raise Failure(f"the neighbour's report has {what}: {seen} instead of {right}")
    once = exits_once(found)
    if once != usual:
        raise Failure(f"exits of the neighbour beside its cycles: {once} instead of {usual}")
    launches = vm["session"]["launches"]
    return {"cycles": figure(found, 0, "cycles"), "kernels verified": launches, "faults": 0}


def usual_exits(causeway, folder):
    """Runs the guest shortly, and returns the exits that VM 0 has beside those of its cycles."""
    place = Place(folder)
    with Command(place, guest(causeway, 2, "--arguments", "faults=1"), "usual") as command:
        command.passes()
    usual = exits_once(report(place))
    place.remove()
    return usual


class Neighbour:
    """A `causeway run` of its own that runs during all trials. Its VM 1 only waits for the end."""

    VMS = 2

    def __init__(self, causeway, folder, usual):
        self.place = Place(folder)
        self.usual = usual
        words = guest(causeway, self.VMS, "--gpu", "software,isolation=process")
        self.command = Command(self.place, words, "neighbour")
        self.vmm, self.worker = Series(TOLERANCES), Series(TOLERANCES)

    def __enter__(self):
        self.command.says("the first cycles are verified")
        return self

    def __exit__(self, *_):
        self.command.__exit__()

    def processes(self):
        return {self.command.pid, *host.descendants(self.command.pid)}

    def sample(self):
        """Samples what it uses. Fails if it has ended."""
        if self.command.process.poll() is not None:
            raise Failure(f"the neighbour has ended: {self.command}")
        self.vmm.add(host.usage(self.command.pid))
        for worker in host.workers(self.command.pid).get(0, []):
            self.worker.add(host.usage(worker))

    def end(self):
        """Ends the neighbour, and returns its figures. Fails if it was disturbed."""
        end_losers(self.command, self.VMS)
        return verify(report(self.place), self.usual)
