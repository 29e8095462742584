//! Programs of nvcc in Linux guests: unmodified, on the libcudart that the command brings.

use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use causeway_nested::{Command, Lease};
use serde_json::Value;

use crate::machines::{CAUSEWAY, KERNEL, REPORT, assert_data_stays_inside, machine, run};
use crate::report::Report;

/// Names the folder with the programs, which `tests/cudart/run` builds.
const VARIABLE: &str = "CAUSEWAY_NESTED_NVCC";
/// Where they lie in the machine, and in the guest that runs several.
const FOLDER: &str = "/tmp/nvcc";
/// Programs with the runtime in a library of its own, with default streams for each thread, and
/// with the runtime inside; those with `12` in their names are built for CUDA 12.
const PROGRAMS: [&str; 31] = [
    "arrays",
    "arrays-12",
    "arrays-12-static",
    "bfs",
    "descriptions",
    "descriptions-12",
    "fft",
    "histogram",
    "kmeans",
    "lu",
    "lu-static",
    "matmul",
    "nbody",
    "nbody-per-thread",
    "needleman_wunsch",
    "nodes",
    "nodes-12",
    "reduction",
    "runtimes",
    "runtimes-12",
    "sort",
    "spmv",
    "stencil",
    "stencil-12",
    "surfaces",
    "textures",
    "textures-12",
    "textures-12-per-thread",
    "textures-static",
    "versions",
    "versions-12",
];
/// Libraries that `runtimes` loads, which lie beside it: each has a runtime of its own.
const PLUGINS: [&str; 4] = [
    "increment-12.so",
    "increment-12-static.so",
    "increment-13.so",
    "increment-13-static.so",
];

/// The folder of the programs, or nothing; what is skipped and why is printed.
#[track_caller]
fn programs(test: &str) -> Option<PathBuf> {
    let found = std::env::var_os(VARIABLE).map(PathBuf::from);
    if found.is_none() {
        let why =
            format!("{VARIABLE} must name a folder: tests/cudart/run makes target/cudart/programs");
        assert!(
            !causeway_nested::is_required(),
            "no programs of nvcc: {why}"
        );
        eprintln!("skipped: no programs of nvcc ({test}): {why}");
    }
    found
}

/// Puts a program into the machine, with the libraries of C++, which the machine does not have.
/// Returns where it lies, and where these do.
fn bring(machine: &Lease, folder: &Path, name: &str) -> (String, Vec<String>) {
    let program = folder.join(name);
    let output = process::Command::new("ldd").arg(&program).output();
    let output = output.expect("ldd can be started").stdout;
    let text = String::from_utf8(output).expect("it prints text");
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    let libraries: Vec<_> = paths.map(str::to_owned).collect();
    for library in &libraries {
        write(machine, library, Path::new(library));
    }
    let place = format!("{FOLDER}/{name}");
    write(machine, &place, &program);
    (place, libraries)
}

fn write(machine: &Lease, place: &str, file: &Path) {
    if machine.read(place).is_err() {
        let content = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        machine.write(place, 0o755, &content);
    }
}

/// Launches and waits that programs marked by `cudaProfilerStart` and `cudaProfilerStop`.
fn profiled(report: &Report) -> u64 {
    let phases = report.phases().filter(|phase| phase.is_data());
    phases.map(|phase| phase.operations()).sum()
}

#[test]
fn a_program_of_nvcc_runs_unmodified_without_an_exit() {
    let test = "a program of nvcc";
    let (Some(folder), Some(machine)) = (programs(test), machine(test)) else {
        return;
    };
    let (place, _) = bring(&machine, &folder, "stencil");
    let words = [
        "--kernel",
        KERNEL,
        "--program",
        &place,
        "--require-zero-exits",
    ];
    let (outcome, report) = run(&machine, &words);
    outcome.assert_code(0);
    assert!(
        outcome.text().contains("stencil: right"),
        "{}",
        outcome.text()
    );
    assert_data_stays_inside(&report);
    assert!(profiled(&report) >= 20, "{}", outcome.text());
}

#[test]
fn programs_of_nvcc_launch_without_an_exit() {
    let test = "programs of nvcc";
    let (Some(folder), Some(machine)) = (programs(test), machine(test)) else {
        return;
    };
    let mut words = vec!["--kernel".to_owned(), KERNEL.to_owned()];
    let mut all = Vec::new();
    for name in PROGRAMS.into_iter().chain(PLUGINS) {
        let (place, libraries) = bring(&machine, &folder, name);
        all.push(place);
        all.extend(libraries);
    }
    all.sort();
    all.dedup();
    words.extend(
        all.iter()
            .flat_map(|path| ["--file".to_owned(), format!("{path}:{path}")]),
    );
    let names = PROGRAMS.join(" ");
    let script = format!("for name in {names}; do {FOLDER}/$name || exit 1; done");
    words.extend(
        [
            "--program",
            "/bin/sh",
            "--require-zero-exits",
            "--",
            "-c",
            &script,
        ]
        .map(str::to_owned),
    );
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let (outcome, report) = run(&machine, &words);
    outcome.assert_code(0);
    // Each says so by the name of its source.
    let source = |name: &'static str| name.split('-').next().expect("a name is not empty");
    for name in PROGRAMS {
        let said = format!("{}: right", source(name));
        let all = PROGRAMS.iter().filter(|it| source(it) == source(name));
        let (times, text) = (outcome.text().matches(&said).count(), outcome.text());
        assert_eq!(times, all.count(), "{said}: {text}");
    }
    assert_data_stays_inside(&report);
    assert!(profiled(&report) >= 100, "{} operations", profiled(&report));
}

#[test]
fn programs_of_a_suite_run_by_process_and_in_guests() {
    let test = "programs of a suite";
    let (Some(folder), Some(machine)) = (programs(test), machine(test)) else {
        return;
    };
    let names = ["lu", "stencil"];
    for name in names {
        bring(&machine, &folder, name);
        // Where `bench suite` builds it, and says how.
        let place = format!("/tmp/suites/cudart-software/{name}");
        write(&machine, &format!("{place}/{name}"), &folder.join(name));
        machine.write(&format!("{place}/command.txt"), 0o644, b"tests/cudart/run");
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cudart/programs");
        let source = format!("{name}.cu");
        write(
            &machine,
            &format!("/tmp/checkouts/cudart/programs/{source}"),
            &beside.join(&source),
        );
    }
    let words = [
        &[
            "bench",
            "suite",
            "--suite",
            "cudart",
            "--built",
            "--by",
            "process,guest",
        ][..],
        &[
            "--source",
            "/tmp/checkouts",
            "--work",
            "/tmp/suites",
            "--kernel",
            KERNEL,
        ],
        &[
            "--gpu",
            "software,memory=64",
            "--memory",
            "256",
            "--json",
            REPORT,
        ],
        &names,
    ]
    .concat();
    // Several guests, one after the other.
    let limit = Duration::from_secs(300);
    let outcome = machine.run(&Command::new(CAUSEWAY, &words).limit(limit));
    outcome.assert_code(0);
    let report = machine.read(REPORT).expect("the report is there");
    let report: Value = serde_json::from_slice(&report).expect("it is JSON");
    let cells = report["cells"].as_array().expect("it has cells");
    assert_eq!(cells.len(), 4, "{report}");
    let mut marked = 0;
    for guest in cells.iter().filter(|cell| cell["mechanism"] == "guest") {
        let (work, exits) = (&guest["work"], &guest["exits"]);
        assert_eq!(exits["data_path"]["exits"], 0, "{guest}");
        marked += exits["data_path"]["operations"].as_u64().unwrap_or(0);
        // Opening the device takes exits, and so does each batch of allocations.
        assert!(
            exits["of_gpu"].as_u64() >= work["batches"].as_u64(),
            "{guest}"
        );
        let is_twin =
            |cell: &&Value| cell["workload"] == guest["workload"] && cell["mechanism"] == "process";
        let twin = cells.iter().find(is_twin).expect("it ran by both ways");
        assert_eq!(work["launches"], twin["work"]["launches"]);
    }
    assert!(marked >= 20, "{marked} operations in {report}");
    let lu = cells
        .iter()
        .find(|cell| cell["workload"] == "cudart/lu" && cell["exits"].is_object());
    let lu = lu.expect("it ran in a guest");
    let (all, launches) = (
        &lu["exits"]["user_space_per_operation"],
        &lu["work"]["launches"],
    );
    assert!(
        all.as_f64() < launches.as_f64(),
        "its launches cause no exits: {lu}"
    );
}
