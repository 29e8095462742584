"""Compares results with what is expected, and prints a table."""


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
    widths = [max(len(str(row[column])) for row in rows) for column in range(5)]
    for row in rows:
        print(" | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())
    return problems
