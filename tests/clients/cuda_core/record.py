"""A pytest plugin that writes the result of each test at once, as run_unittest.py does.

    python3 -m pytest -p record --record RESULTS ...

A test that has a line in RESULTS does not run again: so a run goes on behind a test that ended the
process.
"""

import json


def pytest_addoption(parser):
    parser.addoption("--record", required=True, help="the file to which results are appended")


def pytest_configure(config):
    recorder = Recorder(config.getoption("--record"))
    config.pluginmanager.register(recorder)
    config.add_cleanup(recorder.file.close)


class Recorder:
    """Writes a line when a test starts, and one when it ends. A test has its worst result."""

    def __init__(self, path):
        self.file = open(path, "a+", encoding="utf-8")
        self.file.seek(0)
        self.known = {json.loads(line)["test"] for line in self.file}
        self.state = None

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid not in self.known]

    def pytest_collectreport(self, report):
        if report.outcome != "passed":
            self.end(report.nodeid, report.outcome, reason_of(report))

    def pytest_runtest_logstart(self, nodeid):
        self.state = ("passed", "")
        self.write({"test": nodeid, "result": "started"})

    def pytest_runtest_logreport(self, report):
        if report.outcome == "rerun":  # by pytest-rerunfailures: what comes next counts
            self.state = ("passed", "")
        elif report.outcome == "failed" or self.state[0] == "passed":
            self.state = (report.outcome, reason_of(report))

    def pytest_runtest_logfinish(self, nodeid):
        self.end(nodeid, *self.state)

    def end(self, test, result, reason):
        self.write({"test": test, "result": result, "reason": reason[:2000]})

    def write(self, line):
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()


def reason_of(report):
    """Returns the last line of a failure, or why a test is skipped."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash:
        return crash.message
    if isinstance(report.longrepr, tuple):  # of a skip: file, line, reason
        return report.longrepr[2]
    return str(report.longrepr or "")
