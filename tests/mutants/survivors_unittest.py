"""Tests of survivors.py: python3 -m unittest discover -s tests/mutants -p '*_unittest.py'"""

import json
import unittest

import survivors

NAMES = [
    "a.rs:1:2: replace f -> u64 with 0",
    "a.rs:9:2: replace f -> u64 with 0",
    "b.rs:3:1: replace < with >",
]
FIRST, LAST = "a.rs replace f -> u64 with 0", "b.rs replace < with >"


def outcomes(*results):
    found = survivors.Outcomes()
    mutants = [
        {"scenario": {"Mutant": {"name": name}}, "summary": result}
        for name, result in zip(NAMES, results)
    ]
    baseline = [{"scenario": "Baseline", "summary": "Success"}]
    found.add(json.dumps({"outcomes": baseline + mutants}))
    return found


EXISTING = survivors.names_of(json.dumps([{"name": name} for name in NAMES]))


class Lists(unittest.TestCase):
    def test_a_line_has_a_name_a_number_and_a_reason(self):
        listed = survivors.accepted(f"# head\n\n{FIRST} (2 times)\twhy\n{LAST}\tbecause\n")
        self.assertEqual(listed, {FIRST: (2, "why"), LAST: (1, "because")})

    def test_a_line_without_a_reason_and_a_second_line_are_refused(self):
        for text in (LAST, f"{LAST}\t ", f"{LAST}\twhy\n{LAST}\twhy"):
            with self.assertRaises(ValueError):
                survivors.accepted(text)


class Differences(unittest.TestCase):
    def check(self, listed, results):
        return survivors.differences(outcomes(*results), listed, EXISTING)

    def test_survivors_that_are_accepted_are_right(self):
        listed = {FIRST: (2, "why")}
        results = ["MissedMutant", "MissedMutant", "CaughtMutant"]
        self.assertEqual(self.check(listed, results), [])

    def test_a_survivor_that_is_not_accepted_is_named_with_its_place(self):
        wrong = self.check({}, ["CaughtMutant", "CaughtMutant", "MissedMutant"])
        self.assertEqual(wrong, [f"survives, and is not accepted: {NAMES[2]}"])

    def test_one_more_of_a_name_than_accepted_is_named(self):
        wrong = self.check({FIRST: (1, "why")}, ["MissedMutant", "MissedMutant", "Timeout"])
        self.assertEqual(wrong, [f"survives, and is not accepted: {NAMES[1]}"])

    def test_an_accepted_mutant_that_is_caught_is_named(self):
        wrong = self.check({LAST: (1, "why")}, ["CaughtMutant", "CaughtMutant", "CaughtMutant"])
        self.assertEqual(len(wrong), 1)
        self.assertIn(LAST, wrong[0])

    def test_an_accepted_mutant_that_a_shard_leaves_out_is_not_missed(self):
        self.assertEqual(self.check({LAST: (1, "why")}, ["CaughtMutant"]), [])
        self.assertEqual(self.check({FIRST: (1, "why")}, ["CaughtMutant"]), [])

    def test_an_accepted_mutant_that_is_gone_is_named(self):
        wrong = self.check({"a.rs replace g with 1": (1, "why")}, [])
        self.assertEqual(len(wrong), 1)
        self.assertIn("only 0", wrong[0])


if __name__ == "__main__":
    unittest.main()
