"""Tests of the checks: python3 -m unittest discover -s tests/endurance -p '*_unittest.py'"""

import os
import subprocess
import sys
import tempfile
import unittest

import host
import neighbour
from flat import SAMPLES_MIN, Failure, Series, growth, left

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def problems(values, tolerance=2):
    series = Series({"descriptors": tolerance})
    for value in values:
        series.add({"descriptors": value})
    return series.problems()


class Flatness(unittest.TestCase):
    def test_a_descriptor_leaked_in_each_round_is_growth(self):
        for rounds in (SAMPLES_MIN, 20, 1000):
            found = problems(range(50, 50 + rounds))
            self.assertEqual(len(found), 1, rounds)
            self.assertIn("descriptors grew", found[0])

    def test_a_descriptor_leaked_in_each_round_exceeds_what_trials_tolerate(self):
        tolerance = neighbour.TOLERANCES["descriptors"]
        for rounds in (60, 1000):
            self.assertEqual(len(problems(range(50, 50 + rounds), tolerance)), 1, rounds)

    def test_a_descriptor_leaked_in_every_tenth_round_is_growth(self):
        self.assertEqual(len(problems([50 + number // 10 for number in range(1000)])), 1)

    def test_a_leak_that_begins_late_is_growth(self):
        self.assertEqual(len(problems([50] * 900 + list(range(50, 150)))), 1)

    def test_figures_that_only_vary_are_flat(self):
        self.assertEqual(problems([50 + number % 5 for number in range(1000)]), [])

    def test_growth_within_the_tolerance_and_shrinking_are_flat(self):
        self.assertEqual(problems([50] * 500 + [52] * 500), [])
        self.assertEqual(problems(range(1000, 0, -1)), [])

    def test_the_first_tenth_and_single_outliers_do_not_count(self):
        self.assertEqual(problems(list(range(50)) + [50] * 450), [])
        self.assertEqual(problems([50] * 999 + [5000]), [])

    def test_too_few_samples_are_a_problem_and_none_are_no_figure(self):
        self.assertEqual(len(problems([50] * (SAMPLES_MIN - 1))), 1)
        self.assertEqual(problems([]), [])

    def test_a_figure_without_a_tolerance_is_only_reported(self):
        series = Series({"slab": None})
        for value in range(1000):
            series.add({"slab": value})
        self.assertEqual(series.problems(), [])
        self.assertEqual(series.results()["slab"]["samples"], 1000)

    def test_medians_of_tenths_are_compared(self):
        self.assertEqual(growth(list(range(20))), {"first": 2.5, "last": 18.5})


class Left(unittest.TestCase):
    def test_what_is_new_and_not_allowed_is_left(self):
        before, now = {("file", "a")}, {("file", "a"), ("file", "b"), ("lock", "c")}
        self.assertEqual(left(before, now), [("file", "b"), ("lock", "c")])
        self.assertEqual(left(before, now, [("file", "b")]), [("lock", "c")])
        self.assertEqual(left(now, before), [])

    def test_a_file_is_a_trace_of_its_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            before = host.traces([folder], [])
            path = os.path.join(folder, "socket")
            open(path, "w", encoding="utf-8").close()
            self.assertEqual(left(before, host.traces([folder], [])), [("file", path)])

    def test_a_process_is_a_trace_until_it_has_ended_unless_it_is_known(self):
        before = host.traces([], [])
        with subprocess.Popen(SLEEPER) as process:
            ((what, name),) = left(before, host.traces([], []))
            self.assertEqual((what, name.split()[0]), ("process", str(process.pid)))
            self.assertEqual(left(before, host.traces([], [], [process.pid])), [])
            process.kill()
        self.assertEqual(left(before, host.traces([], [])), [])

    def test_a_descriptor_more_is_seen(self):
        first = host.usage(os.getpid())["descriptors"]
        with open(os.devnull, encoding="utf-8"):
            self.assertEqual(host.usage(os.getpid())["descriptors"], first + 1)

    def test_a_process_that_is_gone_uses_nothing(self):
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            process.wait()
        self.assertEqual(host.usage(process.pid), {})


USUAL = {"mmio:doorbell": 8, "io:record": 5}


def report(cycles=4, **changes):
    """Returns a report of a VM that was not disturbed, with changes to the VM."""
    cycle = {"mmio:doorbell": 198, "io:record": 22}
    vm = {
        "passed": True,
        "worker_restarts": 0,
        "data_path_exits": 0,
        "strays": {"hole_reads": 0},
        "session": {"faults": 0, "launches": 22 * cycles},
        "vmm_exits": {cause: USUAL[cause] + cycles * cycle[cause] for cause in USUAL},
        **changes,
    }
    phases = [{"vm": 0, "name": name, "vmm_exits": cycle} for name in ("first cycle", "last cycle")]
    ratios = [{"vm": 0, "name": "cycles", "value": float(cycles)}]
    return {"vms": [vm], "phases": phases, "ratios": ratios}


class Reports(unittest.TestCase):
    def check(self, found):
        return neighbour.verify(found, USUAL)

    def test_the_number_of_cycles_may_be_any(self):
        for cycles in (4, 4000):
            self.assertEqual(self.check(report(cycles))["cycles"], cycles)

    def test_whatever_has_disturbed_the_neighbour_is_a_failure(self):
        lost = {"faults": 0, "launches": 1, "fault": "lost"}
        for change in (
            {"passed": False},
            {"worker_restarts": 1},
            {"data_path_exits": 1},
            {"strays": {"hole_reads": 1}},
            {"session": {"faults": 1, "launches": 1}},
            {"session": lost},
        ):
            with self.subTest(change), self.assertRaises(Failure):
                self.check(report(**change))

    def test_one_exit_more_is_a_failure(self):
        found = report()
        found["vms"][0]["vmm_exits"]["mmio:doorbell"] += 1
        with self.assertRaises(Failure):
            self.check(found)

    def test_a_last_cycle_with_other_exits_is_a_failure(self):
        found = report()
        found["phases"][1]["vmm_exits"] = {"mmio:doorbell": 199, "io:record": 22}
        with self.assertRaises(Failure):
            self.check(found)


if __name__ == "__main__":
    unittest.main()
