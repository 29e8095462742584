//! Programs of CUDA clients in Linux guests: tinygrad, numba-cuda, cuda.core and PyCUDA, as they
//! come from PyPI, on a root file system that `tests/clients/root` makes.

use std::path::{Path, PathBuf};

use causeway_nested::Lease;

use crate::machines::{
    CLIENTS_ROOT, KERNEL, assert_data_stays_inside, install, machine_with_clients, run_within,
};
use crate::report::{Phase, Report};

/// The interpreter of the root file system.
const PYTHON: &str = "/clients/venv/bin/python3";
/// What a client's own tests may take. Python and its compilers are slow in an emulated machine.
const TESTS_LIMIT_S: u64 = 1800;
/// What other programs may take, some ten times what they do: a machine that stands still must not
/// use up the time of all other tests.
const LIMIT_S: u64 = 480;
/// Variables of the programs, and few lines of the kernel: what it prints in a phase takes exits.
const APPEND: &str = "CAUSEWAY_CUDA_WAITS=spin DEV=CUDA:PTX CACHELEVEL=0 PYTHONWARNINGS=ignore \
                      loglevel=3";

/// Runs a script of `tests/clients/guest` in a guest, within `limit_s` seconds. It must print
/// `text`.
#[track_caller]
fn runs(machine: &Lease, script: &[&str], files: &[&Path], text: &str, limit_s: u64) -> Report {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/guest");
    let own = [scripts.join("phases.py"), scripts.join(script[0])];
    let mut places = vec![install(machine, "causeway-info")];
    for file in own.iter().map(AsRef::as_ref).chain(files.to_vec()) {
        let name = file.file_name().expect("it has a name").to_string_lossy();
        let place = format!("/tmp/{name}");
        let content = std::fs::read(file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        machine.write(&place, 0o755, &content);
        places.push(place);
    }
    let disk = format!("{CLIENTS_ROOT},ro");
    let mut words = vec!["--kernel", KERNEL, "--vcpus", "2", "--memory", "2G"];
    words.extend(["--append", APPEND, "--disk", &disk, "--root", "/dev/vda"]);
    words.extend(["--program", PYTHON]);
    for place in &places {
        words.extend(["--file", place]);
    }
    words.push("--");
    words.extend(script);
    let (outcome, report) = run_within(limit_s, machine, &words);
    outcome.assert_code(0);
    assert!(outcome.text().contains(text), "{}", outcome.text());
    for line in outcome.text().lines().filter(|line| line.contains("run: ")) {
        eprintln!("{line}");
    }
    show(&report);
    report
}

/// Prints what the documentation quotes.
fn show(report: &Report) {
    let exits = |phase: Phase<'_>| phase.kvm("mmio_exits") + phase.kvm("io_exits");
    for phase in report.phases() {
        let (name, operations) = (phase.name(), phase.operations());
        eprintln!("{name}: {operations} operations, {} exits", exits(phase));
    }
    for name in ["messages", "packets"] {
        eprintln!("{name}: {}", report.0["vms"][0]["session"][name]);
    }
}

/// The kernel of programs that bring none.
fn vector_add() -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    examples.join("vector_add/src/vector_add.ptx")
}

/// Runs a script that marks phases of the data path. No operation of them may leave the guest.
#[track_caller]
fn runs_without_exits(client: &str, script: &[&str], files: &[&Path], phases: &[&str]) {
    let Some(machine) = machine_with_clients(client) else {
        return;
    };
    let report = runs(&machine, script, files, "1000 sums are right", LIMIT_S);
    assert_data_stays_inside(&report);
    assert_eq!(report.0["data_path"], "none", "{}", report.0["phases"]);
    for name in phases {
        let phase = report.phase(name);
        assert!(phase.is_data() && phase.operations() >= 40, "{phase:?}");
    }
    assert_no_wait_slept(&report);
}

/// Asserts that no wait slept, or it would have asked for an interrupt.
#[track_caller]
pub fn assert_no_wait_slept(report: &Report) {
    let messages = &report.0["vms"][0]["session"]["messages"];
    for kind in ["wait", "notify"] {
        assert!(messages[kind].is_null(), "{messages}");
    }
}

#[test]
#[ignore = "it runs in a Debian, too (debian.rs): run it by name"]
fn tinygrad_launches_and_copies_without_an_exit() {
    let phases = [
        "launch, wait",
        "graph, wait",
        "copies",
        "tensor in, kernel, tensor out",
    ];
    runs_without_exits("tinygrad", &["tinygrad_operations.py", "20"], &[], &phases);
}

#[test]
#[ignore = "it fails on slow hosts, and tinygrad runs in a Debian: run it by name"]
fn numba_launches_and_copies_without_an_exit() {
    let phases = [
        "launch, wait for stream",
        "launch, wait for context",
        "launch, event, wait for it",
        "copies, pageable memory",
        "copies on stream, pinned memory",
        "new array, copies",
    ];
    runs_without_exits("numba-cuda", &["numba_operations.py", "50"], &[], &phases);
}

#[test]
#[ignore = "numba-cuda is built on cuda.core: run it by name"]
fn cuda_core_launches_and_copies_without_an_exit() {
    let phases = [
        "launch, wait",
        "launch, event, wait for it",
        "copies, pinned memory",
        "memory of the pool, fill",
    ];
    let script = ["cuda_core_operations.py", "vector_add.ptx", "50"];
    runs_without_exits("cuda.core", &script, &[&vector_add()], &phases);
}

#[test]
#[ignore = "PyCUDA has no wheel, so few images have it: run it by name"]
fn pycuda_launches_and_copies_without_an_exit() {
    let phases = [
        "launch, wait for stream",
        "launch, wait for context",
        "launch, event, wait for it",
        "copies, pageable memory",
        "copies on stream, pinned memory",
        "new memory, fill, copy",
    ];
    let script = ["pycuda_operations.py", "vector_add.ptx", "50"];
    runs_without_exits("PyCUDA", &script, &[&vector_add()], &phases);
}

/// Runs a client's own tests twice in a guest. No operation of theirs may leave the guest, but
/// requests may: tests allocate memory and load modules.
#[track_caller]
fn tests_exit_for_requests_alone(client: &str, modules: &[&str], passed: u64) {
    let Some(machine) = machine_with_clients(client) else {
        return;
    };
    let script = [&["suite.py"], modules].concat();
    let text = format!("second run: {passed} passed");
    let report = runs(&machine, &script, &[], &text, TESTS_LIMIT_S);
    let phases = ["first run", "second run"].map(|name| report.phase(name));
    let requests = |phase: Phase<'_>| phase.vmm("mmio:registers:control_doorbell");
    for phase in phases {
        eprintln!("{}: {} requests", phase.name(), requests(phase));
    }
    // In the first run, the program also opens the device.
    phases[1].assert_exits(requests(phases[1]), 0);
    assert_no_wait_slept(&report);
    // A wait that spins asks every two seconds whether the host still answers. Kernels are slow
    // here.
    let both = report.0["phases"].as_array().expect("a list");
    let times = both
        .iter()
        .filter_map(|phase| phase["duration_ns"].as_u64());
    let asks_max = times.sum::<u64>() / 2_000_000_000;
    let asked = report.0["vms"][0]["session"]["messages"]["query_fault"].as_u64();
    assert!(asked.unwrap_or(0) <= asks_max, "{asked:?} of {asks_max}");
}

#[test]
#[ignore = "takes minutes: run it by name"]
fn tests_of_tinygrad_exit_for_requests_alone() {
    // Two more need clang, which the root file system does not have.
    tests_exit_for_requests_alone("tinygrad's tests", &["test_tiny"], 17);
}

#[test]
#[ignore = "takes minutes: run it by name"]
fn tests_of_numba_exit_for_requests_alone() {
    let modules = [
        "cudadrv.test_cuda_memory",
        "cudadrv.test_cuda_ndarray",
        "cudadrv.test_events",
        "cudadrv.test_host_alloc",
        "cudadrv.test_pinned",
        "cudapy.test_stream_api",
        "cudapy.test_sync",
    ];
    let modules = modules.map(|module| format!("numba.cuda.tests.{module}"));
    let modules = modules.each_ref().map(String::as_str);
    tests_exit_for_requests_alone("tests of numba-cuda", &modules, 109);
}
