"""Runs the unittest cases of modules, and writes the result of each at once.

python3 run_unittest.py RESULTS MODULE [MODULE...]

Each test adds two lines of JSON to the file RESULTS: one when it starts, one when it ends. A test
without the second line ended the process.
"""

import json
import os
import sys
import unittest


class Recorder(unittest.TestResult):
    """Writes one line for each event to a file. A test has the worst result of its subtests."""

    def __init__(self, results):
        super().__init__()
        self.results = results
        self.state = None

    def startTest(self, test):
        super().startTest(test)
        self.state = ("passed", "")
        self.write({"test": test.id(), "result": "started"})

    def stopTest(self, test):
        super().stopTest(test)
        self.end(test.id(), *self.state)

    def addError(self, test, error):
        self.failure(test, error)

    def addFailure(self, test, error):
        self.failure(test, error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.failure(test, error)

    def addSkip(self, test, reason):
        if isinstance(test, unittest.suite._ErrorHolder):
            self.end(test.id(), "skipped", reason)
        elif self.state[0] == "passed":
            self.state = ("skipped", reason)

    def addExpectedFailure(self, test, error):
        self.state = ("skipped", "the test expects to fail")

    def addUnexpectedSuccess(self, test):
        self.state = ("failed", "the test expects to fail and passes")

    def failure(self, test, error):
        if error[0].__name__ == "Skipped":  # pytest's, in a suite that pytest runs otherwise
            return self.addSkip(test, str(error[1]))
        reason = f"{error[0].__name__}: {error[1]}"
        if isinstance(test, unittest.suite._ErrorHolder):
            self.end(test.id(), "failed", reason)
        else:
            self.state = ("failed", reason)

    def end(self, test, result, reason):
        self.write({"test": test, "result": result, "reason": reason[:2000]})

    def write(self, line):
        self.results.write(json.dumps(line) + "\n")
        self.results.flush()


def main():
    sys.path[0] = os.getcwd()
    results, modules = sys.argv[1], sys.argv[2:]
    suite = unittest.defaultTestLoader.loadTestsFromNames(modules)
    with open(results, "a", encoding="utf-8") as file:
        suite.run(Recorder(file))


if __name__ == "__main__":
    main()
