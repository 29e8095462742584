"""What `cargo mutants` has found, and the list of accepted survivors.

Mutants are named without line and column, so that an edit above them changes no name. Several
mutants of a file can have one name then; a line of the list accepts as many as it says.
"""

import collections
import json
import re

PLACE = re.compile(r"^(?P<file>[^:]+):\d+:\d+: (?P<what>.*)$")
# At the end of a name: how many mutants have it.
TIMES = re.compile(r" \((\d+) times\)$")


def stable(name):
    """Returns the name of a mutant without line and column."""
    match = PLACE.match(name)
    return f"{match['file']} {match['what']}" if match else name


def accepted(text):
    """Returns name -> (number, reason) of a list of accepted survivors."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, tab, reason = line.partition("\t")
        if not tab or not reason.strip():
            raise ValueError(f"line {number} has no tab with a reason behind it: {line}")
        times = TIMES.search(name)
        name = TIMES.sub("", name)
        if name in found:
            raise ValueError(f"line {number} names a mutant again: {name}")
        found[name] = (int(times[1]) if times else 1, reason)
    return found


def names_of(listing):
    """Returns the stable names in the answer of `cargo mutants --list --json`, with numbers."""
    return collections.Counter(stable(mutant["name"]) for mutant in json.loads(listing))


class Outcomes:
    """The results of one or more runs: stable name -> number, by result."""

    def __init__(self):
        self.by_result = collections.defaultdict(collections.Counter)
        self.places = collections.defaultdict(list)

    def add(self, text):
        """Adds the file `outcomes.json` of a run."""
        for outcome in json.loads(text)["outcomes"]:
            scenario = outcome["scenario"]
            if scenario == "Baseline":
                continue
            name = scenario["Mutant"]["name"]
            self.by_result[outcome["summary"]][stable(name)] += 1
            self.places[stable(name)].append((outcome["summary"], name))

    @property
    def missed(self):
        return self.by_result["MissedMutant"]

    def number(self, *results):
        return sum(self.by_result[result].total() for result in results)

    def tested(self):
        """Returns the number of each mutant that was tested: those that do not compile are not."""
        return self.by_result["CaughtMutant"] + self.by_result["Timeout"] + self.missed


def differences(outcomes, listed, existing):
    """Returns what is wrong, as lines of text. `listed` are the accepted survivors, `existing` the
    numbers of all mutants of the files, whether tested or not."""
    wrong = []
    for name, number in sorted(outcomes.missed.items()):
        allowed = listed.get(name, (0, ""))[0]
        if number > allowed:
            places = [place for result, place in outcomes.places[name] if result == "MissedMutant"]
            wrong += [f"survives, and is not accepted: {place}" for place in places[allowed:]]
    tested = outcomes.tested()
    for name, (number, _) in sorted(listed.items()):
        if existing[name] < number:
            wrong.append(f"is accepted, but there are only {existing[name]} such mutants: {name}")
        # A shard, or a change, may test some of those that have one name.
        elif tested[name] == existing[name] and outcomes.missed[name] < number:
            survive = outcomes.missed[name]
            wrong.append(f"is accepted {number} times, but survives {survive} times: {name}")
    return wrong
