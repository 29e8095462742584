//! Linux guests: stock kernels boot, end, and fail as they should.

use std::fs;

use causeway_nested::{FIRST_WORD, Lease, Requirements};

use crate::machines::{
    FIRST_WORD_INITRAMFS, GENERIC_KERNEL, KERNEL, has_generic_kernel, machine, run,
};

/// Where a kernel as an ELF file lies in the machine.
const ELF_KERNEL: &str = "/tmp/vmlinux";

#[track_caller]
fn boot(machine: &Lease, kernel: &str, vcpus: &str, memory_mib: &str) {
    let guest = ["--kernel", kernel, "--initramfs", FIRST_WORD_INITRAMFS];
    let machine_words = ["--vcpus", vcpus, "--memory", memory_mib];
    let (outcome, report) = run(machine, &[guest, machine_words].concat());
    outcome.assert_code(0);
    let said = outcome.stderr.contains(FIRST_WORD);
    assert!(said, "its first program never ran: {}", outcome.text());
    assert_eq!(report.results(), [("turned off", true)]);
}

#[test]
fn the_cloud_kernel_boots_on_one_processor_in_256_mib() {
    let Some(machine) = machine("cloud kernel, small") else {
        return;
    };
    boot(&machine, KERNEL, "1", "256");
}

#[test]
fn the_cloud_kernel_boots_on_four_processors_in_3_gib() {
    let Some(machine) = machine("cloud kernel, large") else {
        return;
    };
    boot(&machine, KERNEL, "4", "3072");
}

#[test]
fn the_generic_kernel_boots_on_one_and_on_four_processors() {
    let test = "generic kernel";
    let Some(machine) = machine(test).filter(|_| has_generic_kernel(test)) else {
        return;
    };
    boot(&machine, GENERIC_KERNEL, "1", "3072");
    boot(&machine, GENERIC_KERNEL, "4", "256");
}

/// The ELF file in a bzImage that is compressed with LZ4 (Linux, Documentation/x86/boot.rst;
/// lz4_Frame_format.md, "Legacy frame").
fn kernel_within(image: &[u8]) -> Option<Vec<u8>> {
    let word =
        |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let (sectors, offset, bytes) = (usize::from(*image.get(0x1f1)?), word(0x248)?, word(0x24c)?);
    let payload = (1 + sectors) * 512 + offset;
    let mut blocks = image
        .get(payload..payload + bytes - 4)?
        .strip_prefix(&0x184c_2102_u32.to_le_bytes())?;
    let mut kernel = vec![0; word(payload + bytes - 4)?];
    for room in kernel.chunks_mut(8 << 20) {
        let (size, rest) = blocks.split_first_chunk::<4>()?;
        let (block, rest) = rest.split_at_checked(u32::from_le_bytes(*size) as usize)?;
        lz4_flex::block::decompress_into(block, room).ok()?;
        blocks = rest;
    }
    Some(kernel)
}

#[test]
fn a_kernel_as_an_elf_file_boots_by_its_note_and_at_its_64_bit_entry() {
    let Some(machine) = machine("ELF kernels") else {
        return;
    };
    let image = Requirements::find().map(|requirements| requirements.kernel);
    let image = fs::read(image.expect("it was there a moment ago")).unwrap();
    let Some(kernel) = kernel_within(&image) else {
        return eprintln!("skipped: the kernel is not compressed with LZ4 (ELF kernels)");
    };
    machine.write(ELF_KERNEL, 0o644, &kernel);
    let boot = |how: &[&str]| {
        let guest = ["--kernel", ELF_KERNEL, "--initramfs", FIRST_WORD_INITRAMFS];
        let (outcome, report) = run(&machine, &[&guest, how].concat());
        outcome.assert_code(0);
        assert!(outcome.stderr.contains(FIRST_WORD), "{}", outcome.text());
        assert_eq!(report.results(), [("turned off", true)]);
    };
    boot(&["--boot", "pvh"]);
    boot(&["--boot", "linux64"]);
}

#[test]
fn a_kernel_that_panics_is_told_with_what_it_said_last() {
    let Some(machine) = machine("guest's kernel panic") else {
        return;
    };
    // Nothing to run as the first program.
    let (outcome, report) = run(&machine, &["--kernel", KERNEL]);
    outcome.assert_code(5);
    assert_eq!(report.outcome(), "fail");
    for part in ["kernel panicked", "Unable to mount root fs"] {
        assert!(
            outcome.stderr.contains(part),
            "`{part}`: {}",
            outcome.text()
        );
    }
}
