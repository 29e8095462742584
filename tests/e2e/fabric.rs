//! Fabric handles: memory of one machine in another, where both operators allow it. The machines
//! are commands that share the stand-in driver's folder of accounts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::command::{Outcome, Scratch, kvm};
use crate::standin::Machine;

const GPU: i32 = 8;
const NOT_PERMITTED: i32 = 800;

/// `examples/cuda/fabric.c`, built as it says itself; `None` without a compiler.
fn program() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let own = format!("fabric-{}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(own);
        let install = ["cuda", "--install", folder.to_str().unwrap()];
        let installed = Scratch::new().run(&install);
        assert_eq!(installed.code, 0, "{installed:?}");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cuda/fabric.c");
        let path = folder.join("fabric");
        let mut command = Command::new("cc");
        command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]);
        command.args([&path, &source]).arg("-L").arg(&folder);
        let status = command.arg("-lcuda").status().ok()?;
        assert!(status.success(), "the example does not compile");
        Some(path)
    });
    if built.is_none() {
        eprintln!("skipped: this machine has no C compiler `cc`");
    }
    built.as_deref()
}

/// Machines of one fabric.
fn machine() -> Machine {
    Machine::new().with("FABRIC", 1)
}

fn words<'a>(gpu: &'a str, program: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let program = program.to_str().unwrap();
    [&["cuda", "--gpu", gpu, "--", program, "2"], more].concat()
}

fn assert_passed(outcome: &Outcome, said: &str) {
    let passed = outcome.code == 0 && outcome.stdout.contains(said);
    assert!(passed, "{outcome:?}");
}

/// Checks that a call of the example was refused with a result of the driver.
fn assert_refused(outcome: &Outcome, call: &str, result: i32) {
    let said = format!("failed with {result}");
    let line = outcome.stderr.lines().find(|line| line.contains(call));
    let told = line.is_some_and(|line| line.ends_with(&said));
    assert!(outcome.code == 1 && told, "{outcome:?}");
}

#[test]
fn a_program_imports_what_it_has_exported() {
    let Some(program) = program() else { return };
    let outcome = machine().run(&words("cuda,memory=256MiB,fabric=both", program, &[]));
    assert_passed(&outcome, "HANDLE_TYPE_FABRIC_SUPPORTED is 1");
    assert_passed(&outcome, "was exported, imported, read and written");
}

#[test]
fn a_program_imports_what_one_of_another_server_has_exported() {
    let Some(program) = program() else { return };
    let machine = machine();
    let other = machine.beside();
    let handle = machine.scratch().path("handle");
    let path = handle.to_str().unwrap();
    let gpu = "cuda,memory=256MiB,fabric=export";
    let exporter = machine.start(&words(gpu, program, &["export", path]));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !handle.exists() {
        assert!(Instant::now() < deadline, "{}", exporter.stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
    let bytes = std::fs::read(&handle).unwrap();
    let gpu = "cuda,memory=256MiB,fabric=import";
    let importer = other.start(&words(gpu, program, &["import", path]));
    assert_passed(
        &importer.finish(),
        "the exporter's memory was read and written",
    );
    assert_passed(&exporter.finish(), "the importer has written");
    // The memory has ended with its owner.
    std::fs::write(&handle, bytes).unwrap();
    let late = other.run(&words(gpu, program, &["import", path]));
    assert_refused(&late, "cuMemImportFromShareableHandle", 1);
    std::fs::remove_file(handle).unwrap();
}

#[test]
fn a_program_gets_no_more_than_its_operator_allows() {
    let Some(program) = program() else { return };
    let machine = machine();
    for gpu in ["cuda", "cuda,fabric=no"] {
        let outcome = machine.run(&words(gpu, program, &[]));
        assert!(
            outcome.stdout.contains("FABRIC_SUPPORTED is 0"),
            "{outcome:?}"
        );
        assert_refused(&outcome, "cuMemCreate", NOT_PERMITTED);
    }
    let outcome = machine.run(&words("cuda,fabric=import", program, &[]));
    assert_refused(&outcome, "cuMemCreate", NOT_PERMITTED);
    let outcome = machine.run(&words("cuda,fabric=export", program, &[]));
    assert_refused(&outcome, "cuMemImportFromShareableHandle", NOT_PERMITTED);
    let outcome = machine.run(&words("software", program, &[]));
    assert_refused(&outcome, "cuMemCreate", NOT_PERMITTED);
}

#[test]
fn an_import_beyond_the_memory_of_the_importer_is_refused() {
    let Some(program) = program() else { return };
    // Room for what it exports, not for what it would import beside that.
    let program = program.to_str().unwrap();
    let gpu = "cuda,memory=100MiB,fabric=both";
    let outcome = machine().run(&["cuda", "--gpu", gpu, "--", program, "64"]);
    assert_refused(&outcome, "cuMemMap", 2);
}

#[test]
fn a_run_without_a_channel_is_refused_before_its_start_with_the_way_out() {
    let without = Machine::new();
    for value in ["export", "import", "both"] {
        let gpu = format!("cuda,fabric={value}");
        let outcome = without.run(&["serve", "--socket", "socket", "--gpu", &gpu]);
        let parts = ["CUDA_ERROR_NOT_PERMITTED", "IMEX channel", "fabric="];
        outcome.assert_refused(GPU, &parts);
        if kvm("a run without a channel") {
            let outcome = without.run(&["run", "--guest", "exits", "--gpu", &gpu]);
            outcome.assert_refused(GPU, &parts);
        }
    }
}
