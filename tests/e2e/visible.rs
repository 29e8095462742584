//! Memory of the device that guests see: on the software back end, and on the stand-in driver by
//! way of lavapipe, which is how memory of a GPU gets there.

use std::process::Command;

use causeway_standin_cuda::Lavapipe;

use crate::command::{Outcome, Scratch, alone, kvm};
use crate::report::{self, Report};

/// Gives a command the stand-in for a GPU, with memory that lavapipe can show.
pub fn equip(command: &mut Command, scratch: &Scratch, lavapipe: &Lavapipe) {
    // There before the command is started, which must leave nothing behind.
    let state = scratch.path("state");
    std::fs::create_dir_all(&state).unwrap();
    command
        .env("LD_LIBRARY_PATH", causeway_standin_cuda::directory())
        .env("CAUSEWAY_STANDIN_STATE", &state)
        .env("CAUSEWAY_SANDBOX_WRITABLE", &state)
        .envs(lavapipe.settings());
}

/// Runs the guest on the stand-in.
fn run_on_standin(scratch: &Scratch, lavapipe: &Lavapipe, words: &[&str]) -> (Outcome, Report) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command
        .args(["run", "--guest", "visible", "--json", "report.json"])
        .args(["--timeout", "120", "--gpu", "cuda"])
        .args(words);
    equip(&mut command, scratch, lavapipe);
    let outcome = scratch.start_command(command).finish();
    let text = std::fs::read_to_string(scratch.path("report.json"));
    let text = text.unwrap_or_else(|error| panic!("no report: {error}: {outcome:?}"));
    (outcome, Report(serde_json::from_str(&text).unwrap()))
}

/// Lavapipe, unless there is none. Where it must be there, it is an error if it is not.
pub fn lavapipe(test: &str) -> Option<Lavapipe> {
    match Lavapipe::find() {
        Ok(found) => Some(found),
        Err(error) => {
            let required = std::env::var_os("CAUSEWAY_REQUIRE_VULKAN").is_some();
            assert!(!required, "lavapipe: {error}");
            eprintln!("skipped: no lavapipe ({test}): {error}");
            None
        }
    }
}

/// Nothing exits, and each guest has made the two stray accesses that it should.
fn check((outcome, report): &(Outcome, Report), vms: usize) {
    outcome.assert_passed();
    report.assert_exit_free();
    for name in ["stores, a kernel, loads", "fences to and fro"] {
        let phases = report.phases().filter(|phase| phase.name() == name);
        assert_eq!(phases.count(), vms, "{name}: {}", report.0);
    }
    let shared = report
        .phases()
        .filter(|phase| phase.name().contains("import"));
    assert_eq!(shared.count(), if vms == 2 { 2 } else { 0 }, "{}", report.0);
    let texts = outcome
        .stderr
        .matches("the guest wrote to memory in the aperture (BAR 2) that is mapped read-only");
    assert_eq!(texts.count(), vms, "{outcome:?}");
}

#[test]
fn software_memory_is_seen_by_one_guest_and_shared_by_two() {
    if !kvm("visible memory, software") {
        return;
    }
    let _alone = alone();
    let run =
        |words: &[&str]| report::run(&Scratch::new(), &[&["--guest", "visible"], words].concat());
    check(&run(&[]), 1);
    check(&run(&["--vms", "2"]), 2);
    check(
        &run(&["--vms", "2", "--gpu", "software,isolation=process"]),
        2,
    );
}

#[test]
fn memory_behind_vulkan_is_seen_by_one_guest_and_shared_by_two() {
    let name = "visible memory, Vulkan";
    let Some(lavapipe) = lavapipe(name).filter(|_| kvm(name)) else {
        return;
    };
    let _alone = alone();
    for (vms, words) in [(1, &[][..]), (2, &["--vms", "2"])] {
        let run = run_on_standin(&Scratch::new(), &lavapipe, words);
        check(&run, vms);
        let backend = run.1.0["backend"]["name"].as_str().unwrap();
        assert!(backend.contains("Causeway stand-in"), "{backend}");
    }
}

#[test]
fn memory_behind_vulkan_that_does_not_know_it_is_refused() {
    let name = "visible memory of another device";
    let Some(mut lavapipe) = lavapipe(name).filter(|_| kvm(name)) else {
        return;
    };
    // The device is lavapipe's; its memory is not.
    lavapipe.mark = [0; 16];
    let (outcome, report) = run_on_standin(&Scratch::new(), &lavapipe, &[]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert_eq!(report.outcome(), "fail");
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(
        said.contains("memory of the device that CPUs see"),
        "{said}"
    );
}
