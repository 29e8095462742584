//! Linux kernels, and what belongs to them: what cannot be is refused at once, with what is wrong
//! and the way out.

use std::fs::File;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, fcntl_lock, mknodat};

use crate::bare_images::{elf, exit, kernel};
use crate::command::{Outcome, Scratch, kvm};

const USAGE: i32 = 2;
const IMAGE: i32 = 4;
const MIB: u64 = 1 << 20;

/// A kernel that is content with little.
fn with_kernel() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("kernel", &kernel(MIB));
    scratch
}

/// Runs it with other words, in 64 MiB.
fn run(scratch: &Scratch, words: &[&str]) -> Outcome {
    let fixed = [
        "run",
        "--timeout",
        "20",
        "--memory",
        "64",
        "--kernel",
        "kernel",
    ];
    scratch.run(&[&fixed[..], words].concat())
}

/// Makes a file of zeros that takes no room.
fn sparse(scratch: &Scratch, name: &str, bytes: u64) {
    let file = File::create(scratch.path(name)).unwrap();
    file.set_len(bytes).unwrap();
}

fn pipe(scratch: &Scratch, name: &str) {
    let path = scratch.path(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

#[test]
fn an_initramfs_that_cannot_be_read_is_refused_by_name() {
    let scratch = with_kernel();
    scratch.file("empty", b"");
    pipe(&scratch, "pipe");
    for (path, why) in [
        ("missing", "No such file"),
        (".", "regular file"),
        ("/dev/zero", "regular file"),
        ("pipe", "regular file"),
        ("empty", "is empty"),
    ] {
        let outcome = run(&scratch, &["--initramfs", path]);
        let named = format!("the initramfs {path}");
        outcome.assert_refused(IMAGE, &[&named, why]);
    }
    sparse(&scratch, "large", (3 << 30) + 1);
    run(&scratch, &["--initramfs", "large"])
        .assert_refused(IMAGE, &["large", "at most 3221225472 bytes"]);
    pipe(&scratch, "kernel-pipe");
    let outcome = scratch.run(&["run", "--kernel", "kernel-pipe"]);
    outcome.assert_refused(IMAGE, &["kernel-pipe", "regular file"]);
}

#[test]
fn what_does_not_fit_into_memory_is_refused_with_how_much_it_takes() {
    if !kvm("systems that do not fit") {
        return;
    }
    let scratch = with_kernel();
    sparse(&scratch, "large", 100 * MIB);
    run(&scratch, &["--initramfs", "large"]).assert_refused(
        IMAGE,
        &[
            "the initramfs has 104857600 bytes",
            "at least 117 MiB with --memory",
        ],
    );
    scratch.file("kernel", &kernel(200 * MIB));
    run(&scratch, &[]).assert_refused(IMAGE, &["kernel", "at least 216 MiB with --memory"]);
}

#[test]
fn a_command_line_that_is_too_long_is_refused_with_both_lengths() {
    let scratch = with_kernel();
    let text = "x".repeat(3000);
    run(&scratch, &["--append", &text]).assert_refused(USAGE, &["--append", "takes at most 2047"]);
}

#[test]
fn disks_that_cannot_be_are_refused_by_name_and_reason() {
    let scratch = with_kernel();
    sparse(&scratch, "disk", MIB);
    sparse(&scratch, "odd", 1000);
    scratch.file("empty", b"");
    pipe(&scratch, "pipe");
    for (disks, parts) in [
        (
            &["missing"][..],
            &["missing", "it must exist", "truncate"][..],
        ),
        (&["disk,rw"], &["disk,rw", "it must exist"]),
        (&["."], &["regular file"]),
        (&["pipe,ro"], &["pipe", "regular file"]),
        (&["/dev/zero"], &["/dev/zero", "regular file"]),
        (&["odd"], &["odd", "1000 bytes", "multiple of 512"]),
        (&["empty"], &["empty", "truncate -s"]),
        (&[",ro"], &["for --disk"]),
        (&["disk", "disk"], &["disk", "given twice", "image once"]),
        (&["disk,ro", "disk"], &["disk", "given twice"]),
    ] {
        let words: Vec<&str> = disks.iter().flat_map(|disk| ["--disk", disk]).collect();
        run(&scratch, &words).assert_refused(USAGE, parts);
    }
    run(&scratch, &["--disk", "disk", "--vms", "2"]).assert_refused(USAGE, &["--vms 2", ",ro"]);
}

#[test]
fn a_disk_in_use_is_refused_with_the_process_that_has_it() {
    let scratch = with_kernel();
    sparse(&scratch, "disk", MIB);
    let image = File::options()
        .write(true)
        .open(scratch.path("disk"))
        .unwrap();
    let holder = std::process::id().to_string();
    fcntl_lock(&image, FlockOperation::NonBlockingLockExclusive).unwrap();
    for disk in ["disk", "disk,ro"] {
        run(&scratch, &["--disk", disk]).assert_refused(USAGE, &["disk", "in use by", &holder]);
    }
}

/// Kinds of kernels, and ways to boot that are not theirs.
#[test]
fn a_way_to_boot_that_is_not_the_kernels_is_refused_with_what_it_lacks() {
    let scratch = with_kernel();
    scratch.file("bare", &elf(&exit(0)));
    scratch.file("text", b"some text");
    for (file, how, part) in [
        ("kernel", "bzimage", "it is an ELF image"),
        ("bare", "pvh", "without the PVH entry point"),
        ("text", "pvh", "neither a Linux kernel"),
        ("text", "linux64", "neither a Linux kernel"),
        ("text", "bzimage", "neither a Linux kernel"),
    ] {
        scratch
            .run(&["run", "--kernel", file, "--boot", how])
            .assert_refused(IMAGE, &[&format!("cannot boot {file}"), part]);
    }
    scratch
        .run(&["run", "--kernel", "kernel", "--boot", "grub"])
        .assert_refused(USAGE, &["grub", "bzimage", "linux64", "pvh", "bare"]);
}
