//! `causeway initramfs` and `causeway run --program`: programs that can be a guest's workload, and
//! files that cannot.

use std::process::{Command, Stdio};

use causeway_nested::CUDA_CLIENT;

use crate::bare_images::{KIND, MACHINE, changed, elf, exit};
use crate::command::{Outcome, Scratch};

const USAGE: i32 = 2;
const IMAGE: i32 = 4;
const REPORT: i32 = 7;

/// A program that is linked statically.
const PROGRAM: &[u8] = causeway_initramfs::INIT;

/// Runs `initramfs --program app --output guest.json` and what else is given. A scratch directory
/// may be left with reports only, which is what the name is for.
fn make(scratch: &Scratch, words: &[&str]) -> Outcome {
    let words = [
        &["initramfs", "--program", "app", "--output", "guest.json"],
        words,
    ]
    .concat();
    scratch.run(&words)
}

fn with_program(program: &[u8]) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("app", program);
    scratch
}

fn read(scratch: &Scratch) -> Vec<u8> {
    std::fs::read(scratch.path("guest.json")).unwrap()
}

#[test]
fn the_same_program_gives_the_same_bytes_and_cpio_lists_them() {
    let scratch = with_program(PROGRAM);
    scratch.file("data.bin", b"data");
    // The kernel looks at what is compressed.
    scratch.file("my.ko.xz", b"\xfd7zXZ\0module");
    let words = [
        "--file",
        "data.bin",
        "--file",
        "data.bin:/in/put",
        "--module",
        "my.ko.xz",
        "--",
        "--size",
        "9",
    ];
    let outcome = make(&scratch, &words);
    outcome.assert_passed();
    assert!(outcome.stderr.contains("wrote guest.json"), "{outcome:?}");
    let first = read(&scratch);
    make(&scratch, &words).assert_passed();
    assert_eq!(read(&scratch), first);
    let mut to_output = words.to_vec();
    to_output.splice(0..0, ["initramfs", "--program", "app", "-o", "-"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    let output = command
        .args(to_output)
        .current_dir(scratch.path(""))
        .output()
        .unwrap();
    assert_eq!(output.stdout, first);
    let Some(names) = list(&scratch) else { return };
    for name in [
        "init",
        "bin/app",
        "data.bin",
        "in/put",
        "lib/modules/my.ko.xz",
    ] {
        assert!(
            names.lines().any(|line| line == name),
            "{name} is not in {names}"
        );
    }
}

/// What `cpio` lists, where it is installed.
fn list(scratch: &Scratch) -> Option<String> {
    let listed = Command::new("cpio")
        .args(["--list", "--quiet"])
        .stdin(std::fs::File::open(scratch.path("guest.json")).unwrap())
        .stderr(Stdio::inherit())
        .output();
    let Ok(listed) = listed else {
        eprintln!("skipped: cpio is not installed");
        return None;
    };
    assert!(listed.status.success());
    Some(String::from_utf8(listed.stdout).unwrap())
}

/// A dynamic program that needs a library which no host has.
fn lacking() -> Vec<u8> {
    let mut program = std::fs::read(CUDA_CLIENT).unwrap();
    let name = b"\0libgcc_s.so.1\0";
    let at = program.windows(name.len()).position(|part| part == name);
    let at = at.expect("programs in Rust need this library");
    program[at + 1..][..7].copy_from_slice(b"libgone");
    program
}

#[test]
fn a_dynamic_program_brings_its_libraries_and_one_that_is_missing_is_named() {
    let scratch = with_program(&std::fs::read(CUDA_CLIENT).unwrap());
    make(&scratch, &[]).assert_passed();
    if let Some(names) = list(&scratch) {
        for name in [
            "lib64/ld-linux-x86-64.so.2",
            "/libc.so.6",
            "run/causeway/lib/libcuda.so.1",
        ] {
            let found = names.lines().any(|line| line.ends_with(name));
            assert!(found, "{name} is not in {names}");
        }
    }
    let parts = ["app needs the library", "libgones.so.1", "LD_LIBRARY_PATH"];
    make(&with_program(&lacking()), &[]).assert_refused(IMAGE, &parts);
}

#[test]
fn a_root_that_is_no_device_and_files_outside_of_its_folder_are_refused() {
    let scratch = with_program(PROGRAM);
    make(&scratch, &["--root", "vda"]).assert_refused(USAGE, &["vda", "--root", "/dev/vda"]);
    let root = ["--root", "/dev/vda", "--file"];
    let scratch_root = [&root[..], &["app:/etc/app"]].concat();
    // The program is a path of the guest.
    make(&scratch, &scratch_root).assert_refused(USAGE, &["app", "must begin with /"]);
    let words = ["initramfs", "-o", "guest.json", "--program", "/bin/app"];
    let outcome = scratch.run(&[&words[..], &scratch_root].concat());
    outcome.assert_refused(USAGE, &["/etc/app", "/run/causeway"]);
}

#[test]
fn files_that_are_no_program_are_refused_with_what_they_are() {
    make(&with_program(b""), &[]).assert_refused(IMAGE, &["app", "0 bytes"]);
    make(&with_program(b"#!/bin/sh\n"), &[]).assert_refused(IMAGE, &["app", "`/bin/sh`"]);
    make(&with_program(&PROGRAM[..5000]), &[]).assert_refused(IMAGE, &["app", "cut off"]);
    let arm = changed(PROGRAM.to_vec(), MACHINE, &[183, 0]);
    make(&with_program(&arm), &[]).assert_refused(IMAGE, &["app", "AArch64", "x86-64"]);
    let object = changed(PROGRAM.to_vec(), KIND, &[1, 0]);
    make(&with_program(&object), &[]).assert_refused(IMAGE, &["app", "type is 1"]);
    let scratch = Scratch::new();
    for path in ["missing", "/dev/zero", "/tmp"] {
        let words = ["initramfs", "-o", "guest.json", "--program", path];
        scratch.run(&words).assert_refused(IMAGE, &[path]);
    }
    let words = ["initramfs", "-o", "guest.json", "--program", ""];
    assert_ne!(scratch.run(&words).code, 0);
}

#[test]
fn files_that_cannot_be_in_the_guest_are_refused_by_name() {
    let scratch = with_program(PROGRAM);
    scratch.file("data", b"data");
    for (file, named) in [
        ("missing:/x", "missing"),
        ("data:x", "`x`"),
        ("data:/a/../../x", ".."),
        ("data:/", "`/`"),
        ("data:/init", "/init is already in the guest"),
        ("data:/bin/app", "/bin/app is already in the guest"),
        ("data:/proc/x", "/proc"),
        (":/x", "the path on the host is empty"),
        ("/dev/null:/x", "/dev/null"),
    ] {
        make(&scratch, &["--file", file]).assert_refused(USAGE, &[named]);
    }
    make(&scratch, &["--file", "data:/x", "--file", "data:/x"])
        .assert_refused(USAGE, &["/x is already in the guest"]);
    make(&scratch, &["--module", "missing.ko"]).assert_refused(USAGE, &["missing.ko"]);
    scratch.file("random.bin", b"\x12\x34\x56\x78");
    let parts = ["random.bin", "not a kernel module", "4 bytes", "NAME.ko"];
    make(&scratch, &["--module", "random.bin"]).assert_refused(USAGE, &parts);
    make(&scratch, &["--kernel", "missing"]).assert_refused(IMAGE, &["missing"]);
    assert!(!scratch.path("guest.json").exists());
}

#[test]
fn a_place_that_cannot_be_written_to_is_refused() {
    let scratch = with_program(PROGRAM);
    for path in ["/nonexistent/guest.cpio", "/tmp", "app/guest.cpio"] {
        let words = ["initramfs", "--program", "app", "--output", path];
        scratch.run(&words).assert_refused(REPORT, &[path]);
    }
    scratch
        .run(&["initramfs", "--program", "app"])
        .assert_refused(USAGE, &["--output"]);
}

#[test]
fn a_program_needs_a_linux_kernel_and_no_other_initramfs() {
    let scratch = with_program(PROGRAM);
    scratch
        .run(&["run", "--program", "app"])
        .assert_refused(USAGE, &["--kernel"]);
    scratch
        .run(&["run", "--file", "app"])
        .assert_refused(USAGE, &["--program"]);
    scratch
        .run(&["run", "--", "words"])
        .assert_refused(USAGE, &["--program"]);
    let both = [
        "run",
        "--kernel",
        "k",
        "--program",
        "app",
        "--initramfs",
        "x",
    ];
    scratch
        .run(&both)
        .assert_refused(USAGE, &["--program", "--initramfs"]);
    scratch.file("bare.elf", &elf(&exit(0)));
    scratch
        .run(&["run", "--kernel", "bare.elf", "--program", "app"])
        .assert_refused(USAGE, &["--program is for Linux kernels", "bare.elf"]);
}

/// Programs are looked at before there is a VM: none of this needs KVM.
#[test]
fn a_program_that_no_guest_can_run_is_refused_before_anything_runs() {
    let scratch = with_program(&lacking());
    scratch.file("vmlinux", &elf(&exit(0)));
    let linux = ["run", "--kernel", "vmlinux", "--boot", "linux64"];
    scratch
        .run(&[&linux[..], &["--program", "app"]].concat())
        .assert_refused(IMAGE, &["app", "libgones.so.1"]);
}
