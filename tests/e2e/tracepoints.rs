//! `--tracepoints`: KVM's tracepoints as a third witness of exits.

use std::process::Command;

use serde_json::Value;

use crate::command::{Outcome, Scratch, kvm};

/// Mounts tracefs for the command that follows, and for no other process.
const WITH_TRACEFS: &str = "mount -t tracefs tracefs /sys/kernel/tracing && exec \"$@\"";

fn in_own_mounts(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command
}

fn traced(report: &str) -> Value {
    let report: Value = serde_json::from_str(report).unwrap();
    report["tracepoints"].clone()
}

const RUN: [&str; 6] = ["run", "--guest", "exits", "--tracepoints", "--json", "-"];

#[test]
fn tracepoints_count_as_many_returns_as_the_vmm() {
    if !kvm("tracepoints") {
        return;
    }
    let probe = in_own_mounts(WITH_TRACEFS)
        .args(["cat", "/sys/kernel/tracing/events/kvm/kvm_exit/id"])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: tracefs cannot be mounted, or has no tracepoints of KVM");
        return;
    }
    let scratch = Scratch::new();
    let mut command = in_own_mounts(WITH_TRACEFS);
    command.arg(env!("CARGO_BIN_EXE_causeway")).args(RUN);
    let outcome: Outcome = scratch.start_command(command).finish();
    outcome.assert_passed();
    let traced = traced(&outcome.stdout);
    if let Some(skipped) = traced["skipped"].as_str() {
        assert!(skipped.contains("CAP_PERFMON"), "{outcome:?}");
        eprintln!("skipped: {skipped}");
        return;
    }
    let count = |name: &str| traced[name].as_u64().unwrap();
    // 100 port loads and 100 register loads, at least.
    assert!(count("kvm_userspace_exit") >= 200, "{traced}");
    let apart = count("kvm_userspace_exit").abs_diff(count("vmm_exits"));
    assert!(apart <= 1, "{traced}");
    if count("kvm_exit") != 0 {
        assert!(
            count("kvm_exit").abs_diff(count("kvm_exits")) <= 1,
            "{traced}"
        );
    }
}

#[test]
fn without_tracefs_a_run_passes_and_says_why_nothing_was_counted() {
    if !kvm("no tracepoints") {
        return;
    }
    if [
        "/sys/kernel/tracing/events",
        "/sys/kernel/debug/tracing/events",
    ]
    .iter()
    .any(|path| std::fs::exists(path).unwrap_or(true))
    {
        eprintln!("skipped: tracefs is mounted");
        return;
    }
    let scratch = Scratch::new();
    let outcome = scratch.run(&RUN);
    outcome.assert_passed();
    let traced = traced(&outcome.stdout);
    let skipped = traced["skipped"].as_str().unwrap();
    assert!(
        skipped.contains("kvm_exit/id") && skipped.contains("mount -t tracefs"),
        "{skipped}"
    );
    let outcome = scratch.run(&RUN[..4]);
    assert!(
        outcome.stdout.contains("tracepoints: not counted: "),
        "{outcome:?}"
    );
}
