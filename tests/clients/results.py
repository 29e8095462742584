"""Compares results with what is expected, or with native ones, and prints a table."""

import json
import re
import shutil


class Expected:
    """What is known of the failures of a client: tests by name, and how many say what."""

    def __init__(self):
        self.tests, self.patterns = {}, []

    def add(self, test, reason):
        number, many, pattern = test.partition(" tests: ")
        if many:
            self.patterns.append((int(number), re.compile(pattern)))
        else:
            self.tests[test] = reason


def expected_failures(path, find=shutil.which):
    """Reads lines `CLIENT TEST<tab>REASON`. Returns client -> what is expected. In place of one
    CLIENT there may be several, with a comma between two of them.

    A reason `without PROGRAM: ...` is none where `find` finds this program.

    In place of one TEST there may be `NUMBER tests: PATTERN`: so many more tests of the client fail
    for whose name and message, with a space between them, the regular expression is found.
    """
    expected = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, tab, reason = line.partition("\t")
        client, space, test = name.partition(" ")
        if not (tab and space and test and reason):
            raise ValueError(f"{path}:{number}: not CLIENT TEST<tab>REASON: {line}")
        lacks = re.match(r"without (\S+): ", reason)
        if not (lacks and find(lacks[1])):
            for one in client.split(","):
                expected.setdefault(one, Expected()).add(test, reason)
    return expected


def recorded(part, path, status):
    """Returns test -> (result, reason) of the lines that a run of tests wrote.

    A test that ended the process failed, and so did the part if its exit status is not 0.
    """
    tests = {}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        tests[line["test"]] = (line["result"], line.get("reason", ""))
    ending = "the time limit" if status == -1 else f"exit status {status}"
    for test, (result, _) in tests.items():
        if result == "started":
            why = f": {ending}" if status else ""
            tests[test] = ("failed", f"ended the process{why}")
    if status != 0 or not tests:
        tests[part] = ("failed", f"the module ended with {ending} and {len(tests)} results")
    return tests


def problems_of(client, tests, expected):
    """Compares a client's tests with what is expected.

    Returns a line for each way in which they differ, and how many failures are expected.
    """
    lines = []
    for test, (result, reason) in sorted(tests.items()):
        if result != "failed" and test in expected.tests:
            lines.append(f"{client.name} {test} is expected to fail, but is {result}")
    for test in sorted(set(expected.tests) - set(tests)):
        lines.append(f"{client.name} {test} is expected to fail, but is not run")
    failed = {test: one_line(reason) for test, (result, reason) in sorted(tests.items())
              if result == "failed"}
    unknown = {test: reason for test, reason in failed.items() if test not in expected.tests}
    known = len(failed) - len(unknown)
    for number, pattern in expected.patterns:
        found = [test for test, reason in unknown.items() if pattern.search(f"{test} {reason}")]
        for test in found:
            del unknown[test]
        if len(found) != number:
            lines.append(f"{client.name}: {number} tests are expected to fail with "
                         f"{pattern.pattern}, but these {len(found)} do: {', '.join(found)}")
        known += min(number, len(found))
    lines += [f"{client.name} {test} fails: {reason}" for test, reason in unknown.items()]
    skipped = sum(result == "skipped" for result, _ in tests.values())
    if skipped > client.skips_max:
        most = client.skips_max
        lines.append(f"{client.name} skips {skipped} tests, but at most {most} are known")
    return lines, known


def one_line(reason):
    return " ".join(reason.split())[:400]


def report(chosen, outcomes, expected):
    """Prints what differs, and a table of all clients. Returns the number of differences."""
    problems = 0
    rows = [("client", "passed", "expected to fail", "unexpected", "skipped")]
    for client in chosen:
        tests, known = outcomes[client.name], expected.get(client.name, Expected())
        lines, as_expected = problems_of(client, tests, known)
        problems += len(lines)
        for line in lines:
            print(f"error: {line}")
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        for result, _ in tests.values():
            counts[result] += 1
        rows.append((client.name, counts["passed"], as_expected, len(lines), counts["skipped"]))
    print_table(rows)
    return problems


def compare(chosen, native, ours, path):
    """Prints tests that pass natively and fail through Causeway, and a table.

    Returns the number of these tests and of clients none of whose tests passes natively, which
    compares nothing. Writes counts and tests to the file at `path`, if there is one.
    """
    problems = 0
    rows = [("client", "natively", "through Causeway", "only natively", "only through Causeway")]
    summary = {}
    for client in chosen:
        there, here = (passed_tests(outcomes[client.name]) for outcomes in (native, ours))
        lost = {test: ours[client.name].get(test, ("", "not run"))[1] for test in there - here}
        for test, reason in sorted(lost.items()):
            print(f"{client.name} {test} fails here only: {one_line(reason)}")
        if not there:
            why = first_failure(native[client.name])
            print(f"error: {client.name}: no test passes natively: {why}")
        problems += len(lost) + int(not there)
        total = len(native[client.name])
        counts = f"{len(there)} of {total}", f"{len(here)} of {len(ours[client.name])}"
        rows.append((client.name, *counts, len(lost), len(here - there)))
        summary[client.name] = {"tests": total, "native": len(there), "causeway": len(here),
                                "only_native": lost, "only_causeway": sorted(here - there)}
    print_table(rows)
    if path:
        text = json.dumps({"schema": "causeway.clients/1", "clients": summary}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")
    return problems


def first_failure(tests):
    """Names the first test that failed, and what it said."""
    failed = sorted(test for test, (result, _) in tests.items() if result == "failed")
    return f"{failed[0]}: {one_line(tests[failed[0]][1])}" if failed else "none of them failed"


def passed_tests(tests):
    return {test for test, (result, _) in tests.items() if result == "passed"}


def print_table(rows):
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(" | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())
