"""Compares results with what is expected, or with native ones, and prints a table."""

import json


def expected_failures(path):
    """Reads lines `CLIENT TEST<tab>REASON`. Returns client -> test -> reason."""
    expected = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, tab, reason = line.partition("\t")
        client, space, test = name.partition(" ")
        if not (tab and space and test and reason):
            raise ValueError(f"{path}:{number}: not CLIENT TEST<tab>REASON: {line}")
        expected.setdefault(client, {})[test] = reason
    return expected


def problems_of(client, tests, expected):
    """Returns a line for each way in which a client's tests differ from what is expected."""
    lines = []
    for test, (result, reason) in sorted(tests.items()):
        if result == "failed" and test not in expected:
            lines.append(f"{client.name} {test} fails: {' '.join(reason.split())[:400]}")
        if result != "failed" and test in expected:
            lines.append(f"{client.name} {test} is expected to fail, but is {result}")
    for test in sorted(set(expected) - set(tests)):
        lines.append(f"{client.name} {test} is expected to fail, but is not run")
    skipped = sum(result == "skipped" for result, _ in tests.values())
    if skipped > client.skips_max:
        most = client.skips_max
        lines.append(f"{client.name} skips {skipped} tests, but at most {most} are known")
    return lines


def report(chosen, outcomes, expected):
    """Prints what differs, and a table of all clients. Returns the number of differences."""
    problems = 0
    rows = [("client", "passed", "expected to fail", "unexpected", "skipped")]
    for client in chosen:
        tests, known = outcomes[client.name], expected.get(client.name, {})
        lines = problems_of(client, tests, known)
        problems += len(lines)
        for line in lines:
            print(f"error: {line}")
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        for result, _ in tests.values():
            counts[result] += 1
        failed = [test for test, (result, _) in tests.items() if result == "failed"]
        as_expected = sum(test in known for test in failed)
        rows.append((client.name, counts["passed"], as_expected, len(lines), counts["skipped"]))
    print_table(rows)
    return problems


def compare(chosen, native, ours, path):
    """Prints tests that pass natively and fail through Causeway, and a table. Returns their number.

    Writes both counts and these tests to the file at `path`, if there is one.
    """
    rows = [("client", "natively", "through Causeway", "only natively", "only through Causeway")]
    summary = {}
    for client in chosen:
        there, here = (passed_tests(outcomes[client.name]) for outcomes in (native, ours))
        lost = {test: ours[client.name].get(test, ("", "not run"))[1] for test in there - here}
        for test, reason in sorted(lost.items()):
            print(f"{client.name} {test} fails here only: {' '.join(reason.split())[:400]}")
        total = len(native[client.name])
        counts = f"{len(there)} of {total}", f"{len(here)} of {len(ours[client.name])}"
        rows.append((client.name, *counts, len(lost), len(here - there)))
        summary[client.name] = {"tests": total, "native": len(there), "causeway": len(here),
                                "only_native": lost, "only_causeway": sorted(here - there)}
    print_table(rows)
    if path:
        text = json.dumps({"schema": "causeway.clients/1", "clients": summary}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")
    return sum(len(client["only_native"]) for client in summary.values())


def passed_tests(tests):
    return {test for test, (result, _) in tests.items() if result == "passed"}


def print_table(rows):
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(" | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())
