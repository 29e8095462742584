//! The machine's kernel leaves its own code alone while guests come and go (`docs/nested.md`, "What
//! was seen, and how far it is explained").

use causeway_nested::Lease;

use crate::machines::{FIRST_WORD_INITRAMFS, KERNEL, machine, run, shell};

/// Where the kernel's tracing is.
const TRACING: &str = "/sys/kernel/tracing";
/// What all changes of running code go through (Linux, arch/x86/kernel/alternative.c).
const PATCHING: &str = "text_poke_bp_batch";

/// Writes a word to a file of the kernel's tracing, if it takes it.
fn tell(machine: &Lease, file: &str, word: &str) -> bool {
    let script = format!("echo '{word}' >> {TRACING}/{file}");
    machine.run(&shell(&script)).code == 0
}

/// How often the kernel has changed its code since it is counted (Linux,
/// Documentation/trace/kprobetrace.rst).
#[track_caller]
fn patches(machine: &Lease) -> u64 {
    let text = machine.read(&format!("{TRACING}/kprobe_profile")).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut words = text.split_whitespace().skip_while(|word| *word != "patch");
    let hits = words.nth(1).and_then(|hits| hits.parse().ok());
    hits.unwrap_or_else(|| panic!("nothing is counted: {text}"))
}

#[test]
fn the_machines_kernel_patches_nothing_while_guests_come_and_go() {
    let Some(machine) = machine("patches of the machine's kernel") else {
        return;
    };
    if !tell(&machine, "kprobe_events", &format!("p:patch {PATCHING}")) {
        return eprintln!(
            "skipped: the machine's kernel has no {PATCHING} to be counted (patches)"
        );
    }
    assert!(tell(&machine, "events/kprobes/patch/enable", "1"));
    let before = patches(&machine);
    let (outcome, _) = run(&machine, &["--guest", "exits"]);
    outcome.assert_code(0);
    assert_eq!(patches(&machine), before, "a bare guest");
    let guest = ["--kernel", KERNEL, "--initramfs", FIRST_WORD_INITRAMFS];
    let (outcome, _) = run(&machine, &guest);
    outcome.assert_code(0);
    assert_eq!(patches(&machine), before, "a Linux guest");
    // It is counted at all: a trace point is switched on by a patch.
    assert!(tell(&machine, "events/kvm/kvm_entry/enable", "1"));
    assert!(patches(&machine) > before);
    assert!(tell(&machine, "events/kvm/kvm_entry/enable", "0"));
    assert!(tell(&machine, "events/kprobes/patch/enable", "0"));
    assert!(tell(&machine, "kprobe_events", "-:patch"));
}
