"""The trials. Each does something violent at random moments, again and again."""

import contextlib
import itertools
import json
import signal
import sys
import time

import host
import neighbour
from command import Command, Place
from flat import Failure, Series, left

# Lines that a client of a server reads: each lets it compute once more. More than it ever reads.
LINES = 1_000_000
# VMs of the runs in which only some VMs lose their devices. VM 0 is a verified neighbour.
VMS = 4
# Time in which a guest usually notices that its worker process was killed.
PROGRESS_S = 2


class Trial:
    """A trial under way: its random numbers, its folders, and what it has counted."""

    def __init__(self, name, options, beside, usual, random, folder):
        self.name, self.options, self.beside, self.usual = name, options, beside, usual
        self.random = random
        self.place = Place(folder / name)
        self.rounds, self.counts = 0, {}
        self.deadline = time.monotonic() + 60 * options.minutes
        self.series = {"host": Series(host.HOST_TOLERANCES)}
        self.before = self.traces()

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    def command(self, *words, name="command", **more):
        return Command(self.place, [self.options.causeway, *words], name, **more)

    def traces(self, pids=()):
        return host.traces(self.place.watched(), pids, self.beside.processes())

    def pause(self, longest_s):
        """Waits for a random time, so that what follows happens at a random moment."""
        time.sleep(self.random.uniform(0, longest_s))

    def moment(self):
        """Waits for a random time, as often during the start of a command as well into its run."""
        self.pause(self.random.choice([0.03, 0.3, 1.0]))

    def nothing_is_left(self, pids, allowed=()):
        """Fails unless nothing of processes that have ended is left but what is allowed. Returns
        those that are left of the allowed ones."""

        def now():
            return left(self.before, self.traces(pids), allowed)

        host.wait_until(lambda: f"left behind: {now()}", lambda: not now())
        return [trace for trace in allowed if trace in self.traces(pids)]

    def is_over(self):
        """Returns whether the trial has had its time (--minutes)."""
        return time.monotonic() > self.deadline

    def numbers(self, times):
        """Returns the numbers of the rounds, as long as there is time."""
        return itertools.takewhile(lambda _: not self.is_over(), range(times))

    def done(self, rounds=1):
        """Ends a round, or several, and tells the progress ten times."""
        times = self.options.rounds[self.name]
        if 10 * self.rounds // times != 10 * (self.rounds + rounds) // times:
            print(f"{self.name}: {self.rounds + rounds} of {times}", file=sys.stderr, flush=True)
        self.rounds += rounds
        self.sample()

    def sample(self):
        """Samples what the host uses, and looks after the neighbour."""
        self.series["host"].add(host.host_usage())
        self.beside.sample()

    def watch(self, what, pid):
        """Samples what a process uses."""
        if what not in self.series:
            self.series[what] = Series(neighbour.TOLERANCES)
        self.series[what].add(host.usage(pid))

    def published(self, pid):
        """Returns the traces of the socket at which a killed process could be watched. The next
        monitor or run removes it: a killed process cannot."""
        folder = self.place.runtime / "causeway"
        return [("file", str(folder)), *socket_at(folder / str(pid))]

    def clean_up(self, pids, allowed=(), by=("stat", "--all", "--once")):
        """Lets a monitor, or a run, remove what killed processes have left, and checks that it
        has."""
        with self.command(*by, name="cleaner") as command:
            command.end()
        self.nothing_is_left([*pids, command.pid], allowed)


def socket_at(path):
    """Returns the traces of a socket, and of the lock that is held while it is opened."""
    return [("file", str(path)), ("file", f"{path}.lock")]


def vmm(trial, times):
    """Kills `causeway run` at random moments, from its start to well into its run."""
    victims = [
        ["--guest", "stream"],
        ["--guest", "residue", "--arguments", "rounds=100000,mib=8"],
        ["--guest", "residue", "--arguments", "rounds=100000,mib=8", "--vms", "2"],
        ["--guest", "greedy", "--arguments", "seconds=600", "--vms", "2"],
        ["--guest", "endurance", "--arguments", "faults=1000000", "--vms", "2"],
    ]
    for number in trial.numbers(times):
        isolation = ("none", "process")[number % 2]
        words = [*trial.random.choice(victims), "--gpu", f"software,isolation={isolation}"]
        with trial.command("run", "-v", "--json", "report.json", *words) as command:
            trial.moment()
            if not command.kill():
                raise Failure(f"ended before it was killed: {command}")
        guest_ran = "the guest begins to run" in host.read(command.err)
        trial.count("killed while guests ran" if guest_ran else "killed before a guest ran")
        sockets = trial.nothing_is_left([command.pid], trial.published(command.pid))
        trial.count("left its socket to the next command", bool(sockets))
        by = [("stat", "--all", "--once"), ("run", "--guest", "exits", "--memory", "64")]
        trial.clean_up([command.pid], by=trial.random.choice(by))
        trial.done()


def worker(trial, times):
    """Kills worker processes of one long run. Their guests reset their devices and go on."""
    words = ["-v", "--gpu", "software,isolation=process"]
    with Command(trial.place, neighbour.guest(trial.options.causeway, VMS, *words)) as command:
        command.says("the guest begins to run", VMS)
        for _ in trial.numbers(times):
            kill_worker(trial, command)
            trial.done()
        neighbour.end_losers(command, VMS)
    found = neighbour.report(trial.place)
    trial.count("kernels verified beside them", check_vms(trial, found)["kernels verified"])
    for vm in found["vms"][1:]:
        trial.count("worker processes restarted", vm["worker_restarts"])
        trial.count("rounds verified by their guests", rounds(found, vm))
        if vm["worker_restarts"] == 0:
            raise Failure(f"VM {vm['vm']} has not gone on with another worker process")
    trial.nothing_is_left([command.pid])


def kill_worker(trial, command):
    """Kills a worker process of a VM at a random moment, mostly one whose guest computes."""
    vm = trial.random.randrange(1, VMS)
    told = f"vm{vm}| lost "
    before = host.read(command.err).count(told)
    # One in four hits a guest that is about to reset its device, or a worker that has just started.
    in_recovery = trial.random.random() < 0.25
    trial.pause(0.01 if in_recovery else 0.2)
    choice = trial.random.random()

    def kill():
        found = host.workers(command.pid).get(vm, [])
        chosen = found[int(choice * len(found)) :][:1]
        return any(neighbour.signal_worker(command.pid, pid, signal.SIGKILL) for pid in chosen)

    host.wait_until(lambda: f"VM {vm} has no worker process: {command}", kill)
    if in_recovery:
        return
    if not command.said(told, before + 1, PROGRESS_S):
        goes_on(trial, command, vm)
        trial.count("killed that no guest needed: spares, or while they started")
    trial.watch("VMM", command.pid)


def goes_on(trial, command, vm):
    """Waits until a VM launches kernels, which it does only as long as its session works."""
    seen = set()

    def has_launched():
        seen.add(launches(trial, command, vm))
        return len(seen - {None}) > 1

    host.wait_until(lambda: f"VM {vm} does not go on after a kill: {command}", has_launched)


def launches(trial, command, vm):
    """Returns how many kernels a VM has launched, as a monitor sees it; None without an answer."""
    words = ("stat", command.pid, "--once", "--json")
    with trial.command(*words, name="stat") as monitor:
        monitor.end()
    guests = map(json.loads, host.read(monitor.out).splitlines())
    sessions = [guest["session"] for guest in guests if guest["guest"] == f"vm{vm}"]
    return sessions[0]["launches"] if sessions and sessions[0] else None


def check_vms(trial, found):
    """Checks a report of the guest `endurance`. Returns the figures of VM 0."""
    for vm in found["vms"]:
        if not vm["passed"]:
            raise Failure(f"VM {vm['vm']} has not passed: {vm['result']}")
    return neighbour.verify(found, trial.usual)


def rounds(found, vm):
    return neighbour.figure(found, vm["vm"], "rounds verified")


def server(trial, times):
    """Kills `causeway serve` while programs use it. The next one starts at the same path."""
    socket = trial.place.work / "gpu"
    lines = trial.place.outputs / "lines"
    lines.write_bytes(b"\n" * LINES)
    for number in trial.numbers(times):
        isolation = ("none", "process")[number % 2]
        gpu = f"software,memory=16,isolation={isolation}"
        with (
            trial.command("serve", "--socket", "gpu", "--gpu", gpu) as command,
            contextlib.ExitStack() as programs,
        ):
            clients = []
            if trial.random.random() < 0.25:
                trial.pause(0.03)
            else:
                command.says("causeway: serving")
                for name in range(trial.random.randint(1, 3)):
                    one = client(trial, lines, socket, f"client{name}")
                    clients.append(programs.enter_context(one))
                trial.pause(0.3)
            if not command.kill():
                raise Failure(f"ended before it was killed: {command}")
            for one in clients:
                ends_with_a_message(trial, one)
        trial.count("killed with clients" if clients else "killed while it started")
        allowed = [*trial.published(command.pid), *socket_at(socket)]
        sockets = trial.nothing_is_left([command.pid], allowed)
        trial.count("left sockets to the next command", bool(sockets))
        trial.clean_up([command.pid], socket_at(socket))
        trial.done()
    last_server(trial, socket)


def client(trial, lines, socket, name):
    """Starts a program that verifies results until its input ends."""
    with open(lines, "rb") as stdin:
        words = [trial.options.processes, "work"]
        return Command(trial.place, words, name, stdin, CAUSEWAY_SOCKET=str(socket))


# Beginnings of messages: the device is lost, no server listens, the server has just been killed.
CLEAR = ("work: cannot ", "work: the server at ")


def ends_with_a_message(trial, one):
    """Waits for the end of a client whose server was killed, and checks its only message."""
    code = one.end()
    said = host.read(one.err).splitlines()
    if code != 1 or len(said) != 1 or not said[0].startswith(CLEAR):
        raise Failure(f"the client ended with code {code} and {len(said)} messages: {one}")
    trial.count("results verified by clients", host.read(one.out).count("verified"))


def last_server(trial, socket):
    """Checks that after all kills a server serves, and ends with nothing left."""
    with trial.command("serve", "--socket", "gpu", "--gpu", "software,memory=16") as command:
        command.says("causeway: serving")
        few = trial.place.outputs / "few"
        few.write_bytes(b"\n" * 10)
        with client(trial, few, socket, "last") as one:
            one.passes()
            if host.read(one.out).count("verified") != 10:
                raise Failure(f"not 10 verified results from {one}")
        command.process.terminate()
        command.passes()
    trial.nothing_is_left([command.pid, one.pid])


def faults(trial, times):
    """Lets kernels fault in some VMs of one run, which then reset their devices and go on: first
    with all sessions in one process, then with a worker process for each."""
    for isolation, share in (("none", times - times // 2), ("process", times // 2)):
        each = -(-share // (VMS - 1))
        words = ["--arguments", f"faults={each}", "--gpu", f"software,isolation={isolation}"]
        with Command(trial.place, neighbour.guest(trial.options.causeway, VMS, *words)) as command:
            watch_faults(trial, command, f"VMM, isolation={isolation}")
        found = neighbour.report(trial.place)
        trial.count("kernels verified beside them", check_vms(trial, found)["kernels verified"])
        for vm in found["vms"][1:]:
            if neighbour.figure(found, vm["vm"], "losses") != each:
                raise Failure(f"VM {vm['vm']} must have had {each} faults: {vm['session']}")
            trial.count("rounds verified by their guests", rounds(found, vm))
        trial.nothing_is_left([command.pid])
        trial.rounds += each * (VMS - 1)


def watch_faults(trial, command, what):
    """Samples what the VMM uses each time when devices were lost, until it ends."""
    seen = 0
    while command.process.poll() is None:
        now = host.read(command.err).count("| lost ")
        if now == seen:
            time.sleep(0.001)
            continue
        seen = now
        trial.watch(what, command.pid)
        trial.sample()
    command.passes()


def lives(trial, times):
    """Creates and destroys VMs, one to four at a time in a process."""
    while trial.rounds < times and not trial.is_over():
        vms = min(trial.random.choice([1, 2, 4]), times - trial.rounds)
        isolation = trial.random.choice(["none", "process"])
        words = ["--guest", "residue", "--arguments", "rounds=1,mib=1", "--memory", "64"]
        gpu = f"software,isolation={isolation}"
        with trial.command("run", *words, "--vms", str(vms), "--gpu", gpu) as command:
            command.passes()
        trial.count(f"processes with {vms} VMs")
        trial.nothing_is_left([command.pid])
        trial.done(vms)


TRIALS = {
    "vmm": (vmm, 1000, "VMMs killed"),
    "worker": (worker, 1000, "worker processes killed"),
    "server": (server, 1000, "servers killed"),
    "faults": (faults, 1000, "kernels that faulted"),
    "lives": (lives, 10_000, "VMs created and destroyed"),
}
