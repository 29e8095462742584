"""Tests of results.py: python3 -m unittest discover -s tests/clients -p '*_unittest.py'"""

import contextlib
import io
import pathlib
import tempfile
import types
import unittest

import results

CLIENT = types.SimpleNamespace(name="client", skips_max=1)


def expected(*lines, find=lambda program: None):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "expected.txt"
        path.write_text("".join(f"client {line}\n" for line in lines), encoding="utf-8")
        known = results.expected_failures(path, find)
        return known.get("client", results.Expected())


class Expectations(unittest.TestCase):
    def test_failures_of_listed_tests_are_expected(self):
        tests = {"a": ("failed", "no"), "b": ("passed", "")}
        self.assertEqual(results.problems_of(CLIENT, tests, expected("a\twhy")), ([], 1))

    def test_a_listed_test_that_passes_or_does_not_run_is_a_problem(self):
        lines, known = results.problems_of(CLIENT, {"a": ("passed", "")}, expected("a\tw", "b\tw"))
        self.assertEqual((len(lines), known), (2, 0))

    def test_a_pattern_stands_for_its_number_of_failures(self):
        tests = {name: ("failed", "no\n runtime") for name in "abc"}
        known = expected("c\twhy", "2 tests: ^. no runtime\twhy")
        self.assertEqual(results.problems_of(CLIENT, tests, known), ([], 3))

    def test_more_or_fewer_failures_of_a_pattern_are_a_problem(self):
        tests = {name: ("failed", "no runtime") for name in "abc"}
        for number, known in ((2, 2), (4, 3)):
            text = expected(f"{number} tests: no runtime\twhy")
            lines, count = results.problems_of(CLIENT, tests, text)
            self.assertEqual((len(lines), count), (1, known))
            self.assertIn("a, b, c", lines[0])

    def test_an_unknown_failure_and_too_many_skips_are_problems(self):
        tests = {"a": ("failed", "no"), "b": ("skipped", ""), "c": ("skipped", "")}
        self.assertEqual(len(results.problems_of(CLIENT, tests, results.Expected())[0]), 2)

    def test_what_needs_a_missing_program_is_expected_only_where_it_is_missing(self):
        line = "a\twithout clang: it is run"
        self.assertEqual(list(expected(line).tests), ["a"])
        self.assertEqual(list(expected(line, find=lambda program: program).tests), [])
        self.assertEqual(list(expected("a\tit is run", find=lambda program: program).tests), ["a"])

    def test_a_line_can_be_of_several_clients(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "expected.txt"
            path.write_text("one,two a\twhy\ntwo b\twhy\n", encoding="utf-8")
            known = results.expected_failures(path)
        self.assertEqual({name: list(it.tests) for name, it in known.items()},
                         {"one": ["a"], "two": ["a", "b"]})

    def test_a_line_without_a_reason_is_refused(self):
        with self.assertRaises(ValueError):
            expected("a")


class Comparisons(unittest.TestCase):
    def compare(self, native, ours):
        """Returns the number of problems, and what is printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            number = results.compare([CLIENT], {"client": native}, {"client": ours}, None)
        return number, printed.getvalue()

    def test_a_test_that_passes_natively_only_is_a_problem(self):
        native = {"a": ("passed", ""), "b": ("passed", ""), "c": ("failed", "no")}
        ours = {"a": ("passed", ""), "b": ("failed", "why"), "c": ("passed", "")}
        number, printed = self.compare(native, ours)
        self.assertEqual(number, 1)
        self.assertIn("client b fails here only: why", printed)

    def test_a_client_of_which_nothing_passes_natively_is_a_problem(self):
        broken = {"a.py": ("failed", "exit status 4")}
        number, printed = self.compare(broken, broken)
        self.assertEqual(number, 1)
        self.assertIn("no test passes natively: a.py: exit status 4", printed)
        self.assertEqual(self.compare({"a": ("skipped", "")}, {})[0], 1)


class Records(unittest.TestCase):
    def recorded(self, text, status):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "lines.json"
            path.write_text(text, encoding="utf-8")
            return results.recorded("part", path, status)

    def test_a_test_that_ended_its_process_failed_and_so_did_the_part(self):
        tests = self.recorded('{"test": "a", "result": "started"}\n', -1)
        self.assertEqual(tests["a"], ("failed", "ended the process: the time limit"))
        self.assertEqual(tests["part"][0], "failed")

    def test_the_last_line_of_a_test_counts(self):
        lines = ('{"test": "a", "result": "started"}\n'
                 '{"test": "a", "result": "passed", "reason": ""}\n')
        self.assertEqual(self.recorded(lines, 0), {"a": ("passed", "")})

    def test_a_part_without_results_failed(self):
        self.assertEqual(self.recorded("", 0)["part"][0], "failed")


if __name__ == "__main__":
    unittest.main()
