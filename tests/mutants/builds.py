"""Builds the tests of a package with all its mutants behind gates (gates.py)."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import files
import gates


def build(package, work):
    """Leaves the programs of the tests in `work`, with what `together try` has to know."""
    globs, tested = files.packages()[package]
    tree = work / "tree"
    copy_tree(tree)
    mutants = dict(enumerate(json.loads(files.listing(package, globs)), 1))
    placed, refused = put_gates(package, mutants, tree)
    programs = test_programs(tested, tree)
    folder = work / "programs" / package
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Results of another build are of other mutants, or of other tests.
    (work / f"{package}.json").unlink(missing_ok=True)
    for number, (program, _) in enumerate(programs):
        shutil.copy(program, folder / str(number))
    left = [mutant["name"] for number, mutant in mutants.items() if number not in placed]
    (folder / "tests.json").write_text(json.dumps({
        "programs": [{"name": pathlib.Path(program).name, "directory": directory}
                     for program, directory in programs],
        "mutants": {number: mutants[number]["name"] for number in sorted(placed)},
        "refused": {mutants[number]["name"]: message for number, message in refused.items()},
        "left": [name for name in left if name not in refused],
    }, indent=1))
    print(f"{package}: {len(mutants)} mutants, {len(placed)} with a gate; {len(refused)} do not "
          f"compile, and {len(left) - len(refused)} can have none: see {folder}/tests.json")


def put_gates(package, mutants, tree):
    """Puts all mutants in the files of the tree. Returns the numbers of those that are in, and why
    the compiler refused others: number -> message."""
    library = str(library_of(package, tree))
    names = {library} | {mutant["file"] for mutant in mutants.values()}
    refused = {}
    while True:
        texts, placed = {}, set()
        for name in names:
            here = {n: m for n, m in mutants.items() if m["file"] == name and n not in refused}
            source = gates.Source((files.ROOT / name).read_text(), here)
            texts[name] = source.with_gates()
            placed |= source.placed
        for name, text in texts.items():
            (tree / name).write_text(text + (gates.MODULE if name == library else ""))
        before = len(refused)
        for name, start, end, message in errors(package, tree):
            found = gates.blamed(texts[name], start, end) if name in texts else set()
            if not found:
                sys.exit(f"{name}: bytes {start} to {end} are of no mutant:\n{message}")
            refused |= {number: message for number in found}
        if len(refused) == before:
            return placed, refused


def copy_tree(tree):
    """Copies the files of the tree that git knows or does not ignore. What has not changed keeps
    its time, and what is gone goes."""
    words = ["git", "-C", str(files.ROOT), "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"]
    listed = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = {name for name in listed.split("\0") if name and (files.ROOT / name).is_file()}
    for name in names:
        source, copy = files.ROOT / name, tree / name
        if not copy.exists() or source.read_bytes() != copy.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    for copy in tree.rglob("*"):
        if copy.is_file() and str(copy.relative_to(tree)) not in names:
            copy.unlink()


def library_of(package, tree):
    """Returns the path of a package's lib.rs in the tree."""
    words = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    found = subprocess.run(words, cwd=tree, check=True, stdout=subprocess.PIPE).stdout
    targets = next(p["targets"] for p in json.loads(found)["packages"] if p["name"] == package)
    path = next(target["src_path"] for target in targets if target["kind"] == ["lib"])
    return pathlib.Path(path).relative_to(tree)


def cargo(tree, *words):
    """Runs cargo. Returns its exit code, what it built, and the errors of the compiler. Warnings
    are left out: gates have needless parentheses."""
    environment = os.environ | {
        "RUSTFLAGS": "--cap-lints allow",
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_INCREMENTAL": "0",
        "CARGO_TARGET_DIR": str(tree.parent / "target"),
    }
    command = ["cargo", *words, "--message-format", "json"]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    built = [message for message in said if message["reason"] == "compiler-artifact"]
    errors = [message["message"] for message in said if message["reason"] == "compiler-message"
              and message["message"]["level"] == "error"]
    return done.returncode, built, errors


def errors(package, tree):
    """Returns the errors of the compiler, each with its file and its first and last byte."""
    code, _, found = cargo(tree, "check", "--package", package, "--lib")
    placed = [
        (span["file_name"], span["byte_start"], span["byte_end"], error["rendered"])
        for error in found for span in error["spans"] if span["is_primary"]
    ]
    if code and not placed:
        sys.exit(f"cargo check of {package} fails: {[error['rendered'] for error in found]}")
    return placed


def test_programs(names, tree):
    """Builds the tests of packages. Returns the programs with the directories they run in."""
    words = [word for name in sorted(names) for word in ("--package", name)]
    code, built, found = cargo(tree, "test", "--no-run", *words)
    if code:
        said = "\n".join(error["rendered"] for error in found)
        sys.exit(f"the tests of {', '.join(names)} do not compile with gates:\n{said}")
    programs = [one for one in built if one["executable"] and one["profile"]["test"]]
    # Tests of units first: they notice most.
    programs.sort(key=lambda program: "lib" not in program["target"]["kind"])
    return [
        (program["executable"], str(pathlib.Path(program["manifest_path"]).parent))
        for program in programs
    ]
