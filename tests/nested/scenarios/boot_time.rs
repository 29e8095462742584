//! How long a Linux guest takes to its first program, beside QEMU's machine for small guests, on
//! the same KVM.

use std::time::Duration;

use causeway_nested::{Command, FIRST_WORD, Machine};

use crate::beside_qemu::{machine_with_qemu, median};
use crate::machines::{CAUSEWAY, FIRST_WORD_INITRAMFS, KERNEL};

const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 reboot=t";
/// Boots of each, in turn.
const ROUNDS: usize = 5;

#[test]
#[ignore = "compares times: run it by name on a machine that does nothing else"]
fn a_linux_guest_boots_no_slower_than_in_qemus_microvm() {
    let Some(machine) = machine_with_qemu("boot time") else {
        return;
    };
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        own.push(first_word(&machine, &causeway()));
        others.push(first_word(&machine, &microvm()));
    }
    let (own_median, others_median) = (median(own.iter().copied()), median(others.iter().copied()));
    println!("to the first program: causeway {own:.2?}, QEMU's microvm {others:.2?}");
    println!("medians: {own_median:.2?} and {others_median:.2?}");
    assert!(own_median <= others_median);
}

#[track_caller]
fn first_word(machine: &Machine, command: &Command) -> Duration {
    let outcome = machine.run(command);
    let time = outcome.time_of(FIRST_WORD);
    time.unwrap_or_else(|| panic!("the guest never said it: {}", outcome.text()))
}

fn causeway() -> Command {
    let words = [
        "run",
        "--kernel",
        KERNEL,
        "--initramfs",
        FIRST_WORD_INITRAMFS,
        "--append",
        COMMAND_LINE,
        "--memory",
        "256",
    ];
    Command::new(CAUSEWAY, &words)
}

fn microvm() -> Command {
    let words = [
        "-M",
        "microvm",
        "-accel",
        "kvm",
        "-cpu",
        "host",
        "-m",
        "256",
        "-kernel",
        KERNEL,
        "-initrd",
        FIRST_WORD_INITRAMFS,
        "-append",
        COMMAND_LINE,
        "-L",
        "/firmware",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-no-reboot",
    ];
    Command::new("/bin/qemu-microvm", &words)
}
