//! Machines without KVM, or without the permission to use it, made in a mount namespace of the
//! test's own.

use std::process::Command;

use crate::command::{Outcome, Scratch};

const KVM: i32 = 3;

/// Runs the command where `/dev` has been changed by a line of shell; `None` if namespaces are
/// forbidden here.
fn run_where(change: &str, words: &[&str]) -> Option<Outcome> {
    let script = format!("{change} && exec \"$0\" \"$@\"");
    let namespace = ["--mount", "--map-root-user"];
    let possible = Command::new("unshare")
        .args(namespace)
        .args(["sh", "-c", change])
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no mount namespaces here");
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(namespace)
        .args(["sh", "-c", &script, env!("CARGO_BIN_EXE_causeway")])
        .args(words);
    let scratch = Scratch::new();
    Some(scratch.start_command(command).finish())
}

#[test]
fn a_machine_without_kvm_is_told_how_to_get_it() {
    for words in [
        &["run"][..],
        &["run", "--guest", "stream", "--vms", "2"],
        &["run", "--json", "report.json"],
    ] {
        if let Some(outcome) = run_where("mount -t tmpfs none /dev", words) {
            outcome.assert_refused(KVM, &["/dev/kvm", "modprobe"]);
        }
    }
}

#[test]
fn a_user_without_permission_is_told_how_to_get_it() {
    // A device node on a mount with `nodev` cannot be opened, by root either.
    let forbid = "mount --bind /dev/kvm /dev/kvm && mount -o remount,bind,nodev /dev/kvm";
    if !std::path::Path::new("/dev/kvm").exists() {
        eprintln!("skipped: no KVM to forbid");
        return;
    }
    if let Some(outcome) = run_where(forbid, &["run"]) {
        outcome.assert_refused(KVM, &["/dev/kvm", "permission", "group"]);
    }
}

#[test]
fn a_file_in_place_of_kvm_is_not_taken_for_it() {
    let replace = "mount -t tmpfs none /dev && touch /dev/kvm";
    if let Some(outcome) = run_where(replace, &["run"]) {
        outcome.assert_refused(KVM, &["KVM"]);
    }
}

#[test]
fn the_doctor_works_without_kvm() {
    if let Some(outcome) = run_where("mount -t tmpfs none /dev", &["doctor"]) {
        assert_eq!(outcome.code, KVM, "{outcome:?}");
        assert!(outcome.stdout.contains("KVM"), "{outcome:?}");
    }
}
