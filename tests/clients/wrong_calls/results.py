"""Files of results, and what two of them differ in.

A result is a CUresult's number, or says what became of the call instead: `died SIGSEGV`, `hung`,
`missing` (no such function), or `setup FUNCTION CODE` (what the row needs could not be made).
"""

import fnmatch
import json
import pathlib


def read(file):
    """Reads a file of results: JSON, or lines of a name and a result."""
    text = pathlib.Path(file).read_text()
    if file.suffix == ".json":
        return {name: str(result) for name, result in json.loads(text)["rows"].items()}
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split(" ", 1) for line in lines)


def write(file, results, **facts):
    """Writes results as JSON if the file's name says so, and as lines otherwise."""
    if file.suffix == ".json":
        file.write_text(json.dumps({**facts, "rows": results}, indent=1) + "\n")
        return
    lines = "".join(f"{name} {result}\n" for name, result in results.items())
    file.write_text("# Results of run --results, by row: do not edit.\n" + lines)


# Begins the reason of a difference that is none on a GPU.
SOFTWARE = "software: "


def expected_differences(file):
    """Reads lines of PATTERN, theirs, ours and the reason, with tabs between them."""
    expected = []
    for line in file.read_text().splitlines() if file else []:
        if line and not line.startswith("#"):
            pattern, theirs, ours, reason = line.split("\t")
            expected.append((pattern, theirs, ours, reason))
    return expected


def is_crash(result):
    return result.startswith(("died", "hung"))


def changes(known, now):
    """Prints which results are not those that are known. Returns their number."""
    changed = [name for name in known.keys() | now.keys() if known.get(name) != now.get(name)]
    for name in sorted(changed):
        print(f"changed {name:55} {known.get(name, 'absent'):22} {now.get(name, 'absent')}")
    print(f"{len(now)} rows, {len(changed)} changed")
    return len(changed)


def compare(theirs, ours, expected):
    """Prints what differs and is not expected. Returns the number of problems."""
    used, problems, crashes, same, explained = set(), [], [], 0, 0
    for name in sorted(theirs.keys() | ours.keys()):
        pair = (theirs.get(name, "absent"), ours.get(name, "absent"))
        if pair[0] == pair[1]:
            same += 1
            continue
        if is_crash(pair[0]) and not is_crash(pair[1]):
            crashes.append((name, *pair))
            continue
        rule = next((rule for rule in expected if matches(rule, name, *pair)), None)
        if rule:
            used.add(rule)
            explained += 1
        else:
            problems.append((name, *pair))
    unused = [rule for rule in expected if rule not in used]
    stale = [rule for rule in unused if not rule[3].startswith(SOFTWARE)]
    for name, first, second in crashes:
        print(f"crash  {name:55} {first:22} {second}")
    for name, first, second in problems:
        print(f"differ {name:55} {first:22} {second}")
    for rule in stale:
        print(f"expected, but no such difference: {' '.join(rule[:3])}")
    print(f"{same} same, {explained} differ as expected, {len(problems)} differ; "
          f"{len(crashes)} end the first library's process")
    return len(problems) + len(stale)


def matches(rule, name, theirs, ours):
    pairs = zip(rule, (name, theirs, ours))
    return all(fnmatch.fnmatchcase(value, pattern) for pattern, value in pairs)
