"""The files that are mutated (files.txt), and the mutants that cargo-mutants finds in them."""

import collections
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What a process of a build with gates reads, once: the number of the mutant that it has.
VARIABLE = "CAUSEWAY_MUTANT"


def packages():
    """Returns package -> (globs of files, packages whose tests run)."""
    found = collections.defaultdict(lambda: ([], set()))
    for line in (HERE / "files.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            package, files, tests = line.split("\t")
            found[package][0].append(files)
            found[package][1].update(tests.split())
    return found


def command(package, globs, *rest):
    """Returns a command of cargo-mutants for files of a package."""
    files = [word for glob in globs for word in ("--file", glob)]
    return ["cargo", "mutants", "--dir", str(ROOT), "--package", package, *files, *rest]


def listing(package, globs):
    """Returns all mutants of the files of a package, as JSON text of cargo-mutants."""
    words = command(package, globs, "--list", "--json", "--level", "error")
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
