//! `causeway bench suite`, with a compiler that takes shell scripts for programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::command::{Outcome, Scratch};

/// Exit code of a command with a bad argument.
const USAGE: i32 = 2;
/// Exit code if a program failed.
const FAILED: i32 = 1;

/// Takes the word behind -o for the program, and the last one for its source. One that says so is
/// an error.
const COMPILER: &str = r#"#!/bin/sh
for last; do [ "$before" = -o ] && target=$last; before=$last; done
grep -q 'syntax error' "$last" && { echo "$last: error: not a program" >&2; exit 2; }
cp "$last" "$target" && chmod 755 "$target"
"#;

const RECIPE: &str = r#"
repository = "https://example.org/them/programs"
commit = "0123abc"

[[program]]
name = "sum"
sources = ["first/sum"]
arguments = ["{inputs}/hotspot/temp_4", "8"]
inputs = ["hotspot/temp_4"]
right = "^16 lines, 8$"

[[program]]
name = "wrong"
sources = ["first/wrong"]
wrong = "mismatch"

[[program]]
name = "lacking"
sources = ["first/lacking"]
lacks = "arrays"

[[program]]
name = "broken"
sources = ["first/broken"]

[[program]]
name = "large"
sources = ["first/sum"]
software = { skip = "takes hours" }
"#;

/// A suite of scripts in the scratch directory. Returns the options for it.
fn suite(scratch: &Scratch) -> Vec<String> {
    let folder = scratch.path("checkouts/programs/first");
    fs::create_dir_all(&folder).unwrap();
    for (name, script) in [
        (
            "sum",
            "#!/bin/sh\ntouch left\nsleep 0.01\necho \"$(wc -l <$1) lines, $2\"\n",
        ),
        ("wrong", "#!/bin/sh\necho a mismatch at 3\n"),
        ("lacking", "#!/bin/sh\nexit 4\n"),
        ("broken", "syntax error\n"),
    ] {
        fs::write(folder.join(name), script).unwrap();
    }
    let recipe = scratch.file("own.toml", RECIPE.as_bytes());
    let compiler = scratch.file("nvcc", COMPILER.as_bytes());
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    let source = scratch.path("checkouts").to_str().unwrap().to_owned();
    let work = scratch.path("work");
    fs::create_dir(&work).unwrap();
    let work = work.to_str().unwrap();
    let words = [
        "--suite", &recipe, "--nvcc", &compiler, "--source", &source, "--work", work,
    ];
    words.map(str::to_owned).to_vec()
}

fn bench(scratch: &Scratch, options: &[String], more: &[&str]) -> Outcome {
    let options = options.iter().map(String::as_str);
    let words = ["bench", "suite", "--gpu", "software,memory=64"];
    let words: Vec<&str> = words
        .into_iter()
        .chain(options)
        .chain(more.iter().copied())
        .collect();
    scratch.run(&words)
}

fn reasons(report: &Value) -> Vec<(&str, &str, &str)> {
    let missing = report["missing"].as_array().unwrap().iter();
    missing
        .map(|it| {
            let field = |name: &str| it[name].as_str().unwrap();
            (field("workload"), field("outcome"), field("reason"))
        })
        .collect()
}

#[test]
fn each_program_is_built_run_and_judged_by_its_recipe() {
    let scratch = Scratch::new();
    let options = suite(&scratch);
    let more = [
        "--repetitions",
        "2",
        "--json",
        "report.json",
        "--csv",
        "report.csv",
    ];
    let outcome = bench(&scratch, &options, &more);
    assert_eq!(outcome.code, FAILED, "{outcome:?}");
    let text = fs::read_to_string(scratch.path("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    crate::schema::assert_valid(&report);
    assert_eq!(report["passed"], false);
    assert_eq!(
        report["result"],
        "1 passed, 1 unsupported, 1 skipped, 1 failed, 1 not built"
    );
    let cell = &report["cells"][0];
    assert_eq!(
        (&cell["workload"], &cell["mechanism"]),
        (&"own/sum".into(), &"process".into())
    );
    let times = cell["time"]["samples_ns"].as_array().unwrap();
    assert_eq!(times.len(), 2);
    assert!(
        times.iter().all(|ns| ns.as_f64().unwrap() >= 1e7),
        "{times:?}"
    );
    assert_eq!(cell["work"]["launches"], 0);
    let reasons = reasons(&report);
    let broken = reasons
        .iter()
        .find(|(name, ..)| *name == "own/broken")
        .unwrap();
    assert!(broken.2.contains("error: not a program"), "{broken:?}");
    for expected in [
        ("own/wrong", "failed", "wrong results: mismatch"),
        ("own/lacking", "lacks", "arrays"),
        ("own/large", "skipped", "takes hours"),
    ] {
        assert!(reasons.contains(&expected), "{expected:?} of {reasons:?}");
    }
    assert!(
        outcome.stdout.contains("own/wrong by process failed: "),
        "{outcome:?}"
    );
    let left = scratch.path("checkouts/programs/first/left");
    assert!(!left.exists(), "programs write into a copy");
    let csv = fs::read_to_string(scratch.path("report.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 1 + 4, "{csv}");
}

#[test]
fn reports_of_suites_can_be_compared() {
    let scratch = Scratch::new();
    let options = suite(&scratch);
    for file in ["a.json", "b.json"] {
        let more = ["sum", "--repetitions", "6", "--json", file];
        assert_eq!(bench(&scratch, &options, &more).code, 0);
    }
    let compare = |before, after| scratch.run(&["bench", "suite", "--compare", before, after]);
    // The time of a shell may vary by any factor.
    let outcome = compare("a.json", "b.json");
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(
        said.contains("1 cells compared") || said.contains("no cell has times"),
        "{said}"
    );
    let text = fs::read_to_string(scratch.path("a.json")).unwrap();
    let text = text.replace("causeway.bench-suite/1", "causeway.bench-exits/1");
    scratch.file("c.json", text.as_bytes());
    let outcome = compare("a.json", "c.json");
    assert_eq!(outcome.code, USAGE, "{outcome:?}");
    assert!(
        outcome.stderr.contains("not causeway.bench-suite/1"),
        "{outcome:?}"
    );
}

#[test]
fn what_is_missing_is_said_with_the_way_to_get_it() {
    let scratch = Scratch::new();
    let options = suite(&scratch);
    let source = &options[4..];
    let known = |suite: &str| [&["--suite".to_owned(), suite.to_owned()][..], source].concat();
    for (options, more, said) in [
        (
            known("rodinia"),
            &[][..],
            "git clone https://github.com/yuhc/gpu-rodinia ",
        ),
        (known("rodina"), &[], "cudart, polybench, rodinia, samples"),
        (known("gone.toml"), &[], "cannot read the recipe gone.toml"),
        (
            options.clone(),
            &["nothing"],
            "no program is called nothing: choose of sum, wrong",
        ),
        (
            options.clone(),
            &["--by", "car"],
            "choose of native, process, guest",
        ),
        (options.clone(), &["--by", "guest"], "name it with --kernel"),
        (
            options.clone(),
            &["--by", "native,process"],
            "choose --gpu cuda, or native alone",
        ),
        (
            options.clone(),
            &["--exits", "own.toml"],
            "own.toml is not a report",
        ),
        (source.to_vec(), &[], "none of the suites cudart, polybench"),
    ] {
        let outcome = bench(&scratch, &options, more);
        assert_eq!(outcome.code, USAGE, "{outcome:?}");
        assert!(outcome.stderr.contains(said), "{said}: {outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    }
    let mut options = options;
    options[3] = String::from("/no/nvcc");
    let outcome = bench(&scratch, &options, &["sum"]);
    assert_eq!(outcome.code, FAILED, "{outcome:?}");
    assert!(
        outcome
            .stdout
            .contains("cannot start /no/nvcc (--nvcc names it)"),
        "{outcome:?}"
    );
}

#[test]
fn a_program_that_does_not_end_is_ended() {
    let scratch = Scratch::new();
    let options = suite(&scratch);
    let endless = scratch.path("checkouts/programs/first/sum");
    fs::write(endless, "#!/bin/sh\nexec sleep 300\n").unwrap();
    let outcome = bench(&scratch, &options, &["sum", "--limit", "1"]);
    assert_eq!(outcome.code, FAILED, "{outcome:?}");
    assert!(
        outcome.stdout.contains("it did not end within 1 s"),
        "{outcome:?}"
    );
}

#[test]
fn what_a_program_did_is_reported() {
    let scratch = Scratch::new();
    let report = scratch.path("report.json");
    let report = report.to_str().unwrap();
    let words = [
        "cuda",
        "--gpu",
        "software,memory=64",
        "--json",
        report,
        "--",
        "sh",
        "-c",
        "exit 3",
    ];
    let outcome = scratch.run(&words);
    assert_eq!(outcome.code, 3, "{outcome:?}");
    let text = fs::read_to_string(report).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    crate::schema::assert_valid(&report);
    assert_eq!(report["program_status"], 3);
    assert_eq!(
        report["sessions"].as_array().unwrap().len(),
        0,
        "it used no GPU"
    );
}
