//! How long a Linux guest takes to its first program, beside QEMU's machine for small guests, on
//! the same KVM.

use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_nested::{
    Command, Contents, ContentsError, FIRST_WORD, Machine, Requirements, first_word_initramfs,
};

use crate::machines::{CAUSEWAY, shape};

const KERNEL: &str = "/guest/vmlinuz";
const INITRAMFS: &str = "/guest/initramfs";
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 reboot=t";
/// Programs that emulate QEMU's microvm, the one that was made for it first.
const EMULATORS: &[&str] = &["qemu-system-x86_64-microvm", "qemu-system-x86_64"];
/// What they read at run time.
const FIRMWARE: &[&str] = &[
    "qboot.rom",
    "bios-microvm.bin",
    "linuxboot_dma.bin",
    "pvh.bin",
];
/// Boots of each, in turn.
const ROUNDS: usize = 5;

#[test]
#[ignore = "compares times: run it by name on a machine that does nothing else"]
fn a_linux_guest_boots_no_slower_than_in_qemus_microvm() {
    let requirements = match Requirements::find() {
        Ok(requirements) => requirements,
        Err(missing) => return eprintln!("skipped: no emulated machine (boot time): {missing}"),
    };
    let contents = contents(&requirements).unwrap();
    let machine = Machine::boot(&requirements, &shape(), &contents).unwrap();
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        own.push(first_word(&machine, &causeway()));
        others.push(first_word(&machine, &microvm()));
    }
    let (own_median, others_median) = (median(&own), median(&others));
    println!("to the first program: causeway {own:.2?}, QEMU's microvm {others:.2?}");
    println!("medians: {own_median:.2?} and {others_median:.2?}");
    assert!(own_median <= others_median);
}

fn contents(requirements: &Requirements) -> Result<Contents, ContentsError> {
    let folder = requirements
        .emulator
        .parent()
        .unwrap_or(Path::new("/usr/bin"));
    let mut emulators = EMULATORS.iter().map(|name| folder.join(name));
    let emulator = emulators.find(|path| path.is_file());
    let mut contents = Contents::default()
        .program("causeway", Path::new(env!("CARGO_BIN_EXE_causeway")))?
        .program(
            "qemu",
            &emulator.unwrap_or_else(|| requirements.emulator.clone()),
        )?
        .file(KERNEL, &requirements.kernel)
        .bytes(INITRAMFS, first_word_initramfs()?);
    for name in FIRMWARE {
        let file = PathBuf::from("/usr/share/qemu").join(name);
        contents = contents.file(&file.display().to_string(), &file);
    }
    Ok(contents)
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
        INITRAMFS,
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
        INITRAMFS,
        "-append",
        COMMAND_LINE,
        "-L",
        "/usr/share/qemu",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-no-reboot",
    ];
    Command::new("/bin/qemu", &words)
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}
