//! Unmodified CUDA programs in Linux guests: in C, in Rust, and in Python on a root of its own.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;

use causeway_nested::{CUDA_CLIENT, Lease, Outcome};

use crate::machines::{KERNEL, assert_data_stays_inside, install, machine, run};
use crate::report::Report;

/// The phases that each program marks.
const PHASES: [&str; 3] = [
    "launch and wait",
    "copies, pinned memory",
    "copies, pageable memory",
];
/// Where the kernel of the programs lies in the machine.
const PTX: &str = "/tmp/vector_add.ptx";
/// A disk with Python as a root file system.
const ROOT: &str = "/tmp/python-root.img";

/// A file of the example.
fn example(name: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    examples.join(name)
}

/// Runs a program of this host, which must succeed, and returns what it printed.
#[track_caller]
fn host(command: &mut process::Command) -> String {
    let output = command.output().expect("the program can be started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Puts a file of this host into the machine.
fn bring(machine: &Lease, file: &Path, place: &str) {
    let content = std::fs::read(file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    machine.write(place, 0o755, &content);
}

/// Compiles the program in C, once.
fn compiled() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("vector_add"))
}

/// Compiles a program in C, against the library that the command brings.
fn compile(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-in-c-{name}"));
    let program = folder.join(name);
    let causeway = env!("CARGO_BIN_EXE_causeway");
    let installed = ["cuda".as_ref(), "--install".as_ref(), folder.as_os_str()];
    host(process::Command::new(causeway).args(installed));
    let mut compiler = process::Command::new("cc");
    compiler
        .args(["-O2", "-Wall", "-Werror", "-o"])
        .arg(&program);
    compiler.arg(example(&format!("cuda/{name}.c")));
    host(compiler.arg("-L").arg(&folder).arg("-lcuda"));
    program
}

#[track_caller]
fn runs(machine: &Lease, words: &[&str]) -> (Outcome, Report) {
    let all = [&["--kernel", KERNEL, "--vcpus", "2"], words].concat();
    let (outcome, report) = run(machine, &all);
    outcome.assert_code(0);
    assert!(
        outcome.text().contains("1000 sums are right"),
        "{}",
        outcome.text()
    );
    (outcome, report)
}

/// Asserts that launches, copies and waits of a program left the guest for nothing.
#[track_caller]
fn assert_no_exits(outcome: &Outcome, report: &Report, operations: u64) {
    assert_data_stays_inside(report);
    assert_eq!(report.0["data_path"], "none", "{}", outcome.text());
    for name in PHASES {
        let phase = report.phase(name);
        assert!(phase.is_data(), "{phase:?}");
        assert_eq!(phase.operations(), operations, "{phase:?}");
    }
}

#[test]
fn a_program_in_c_launches_and_copies_without_an_exit() {
    let Some(machine) = machine("CUDA in C") else {
        return;
    };
    let place = "/tmp/vector_add";
    bring(&machine, compiled(), place);
    bring(&machine, &example("vector_add/src/vector_add.ptx"), PTX);
    let words = ["--program", place, "--file", PTX];
    let zero = [
        &words[..],
        &["--require-zero-exits", "--", "vector_add.ptx"],
    ]
    .concat();
    let (outcome, report) = runs(&machine, &zero);
    assert_no_exits(&outcome, &report, 400);
    assert_eq!(report.phase("launches, one wait").operations(), 201);
    for memory in ["pinned", "pageable"] {
        let phase = report.phase(&format!("copies of 1 MiB, {memory} memory"));
        assert!(phase.is_data() && phase.operations() == 20, "{phase:?}");
    }
    // The same program with waits that may sleep shows that exits would have been counted.
    let sleeping = [&words[..], &["--", "vector_add.ptx", "sleep"]].concat();
    let (outcome, report) = runs(&machine, &sleeping);
    let slept = report.phase(PHASES[0]).kvm("mmio_exits");
    assert_ne!(slept, 0, "{}", outcome.text());
}

#[test]
fn a_program_on_two_devices_copies_between_them_and_computes_with_a_peers_memory() {
    let Some(machine) = machine("CUDA on two devices") else {
        return;
    };
    let place = "/tmp/peers";
    bring(&machine, &compile("peers"), place);
    bring(&machine, &example("vector_add/src/vector_add.ptx"), PTX);
    let gpus = [
        "--gpu",
        "software:0,memory=64",
        "--gpu",
        "software:1,memory=64",
    ];
    let words = [
        &gpus[..],
        &["--kernel", KERNEL, "--program", place, "--file", PTX],
    ]
    .concat();
    let (outcome, _) = run(
        &machine,
        &[&words[..], &["--", "vector_add.ptx", "1"]].concat(),
    );
    outcome.assert_code(0);
    for line in [
        "2 devices, peers: yes",
        "sums of a peer's vectors are right",
    ] {
        assert!(outcome.text().contains(line), "{}", outcome.text());
    }
    // With one function, the same program says what it lacks.
    let one = [&words[2..], &["--", "vector_add.ptx", "1"]].concat();
    let (outcome, _) = run(&machine, &one);
    outcome.assert_code(1);
    assert!(outcome.text().contains("there is 1"), "{}", outcome.text());
}

#[test]
fn a_program_with_cudarc_launches_and_copies_without_an_exit() {
    let Some(machine) = machine("CUDA in Rust") else {
        return;
    };
    let place = "/tmp/cuda_vector_add";
    bring(&machine, Path::new(CUDA_CLIENT), place);
    let (outcome, report) = runs(&machine, &["--program", place, "--require-zero-exits"]);
    assert_no_exits(&outcome, &report, 400);
}

#[test]
#[ignore = "a Debian has Python, too (debian.rs): run it by name"]
fn a_program_in_python_on_a_root_of_its_own_launches_and_copies_without_an_exit() {
    let Some(machine) = machine("CUDA in Python") else {
        return;
    };
    let image = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-root.img");
    let maker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/nested/python-root");
    let python = host(process::Command::new(maker).arg(&image));
    bring(&machine, &image, ROOT);
    bring(&machine, &example("vector_add/src/vector_add.ptx"), PTX);
    let script = "/tmp/vector_add.py";
    bring(&machine, &example("cuda/vector_add.py"), script);
    let tool = install(&machine, "causeway-info");
    let disk = format!("{ROOT},ro");
    let root = [
        "--disk",
        &disk,
        "--root",
        "/dev/vda",
        "--program",
        python.trim(),
    ];
    let files = ["--file", script, "--file", PTX, "--file", &tool];
    let arguments = ["--", "vector_add.py", "vector_add.ptx", "causeway-info"];
    let all = [&root[..], &files, &["--require-zero-exits"], &arguments].concat();
    let (outcome, report) = runs(&machine, &all);
    assert_no_exits(&outcome, &report, 200);
    assert!(
        !outcome.text().contains("causeway-init"),
        "{}",
        outcome.text()
    );
}
