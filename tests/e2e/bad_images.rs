//! Files that are no guest.

use causeway_protocol::boot::IMAGE_BASE;

use crate::bare_images::{
    CLASS, ENTRY, KIND, MACHINE, SEGMENT_ADDRESS, SEGMENT_BYTES, SEGMENT_FILE_BYTES, SEGMENT_KIND,
    SEGMENT_VIRTUAL_ADDRESS, changed, elf, exit,
};
use crate::command::{Outcome, Scratch, kvm};

const IMAGE: i32 = 4;

fn boot(image: &[u8]) -> Outcome {
    let scratch = Scratch::new();
    let path = scratch.file("guest.elf", image);
    scratch.run(&["run", "--memory", "64", "--kernel", &path])
}

#[test]
fn a_file_that_cannot_be_read_is_refused_by_name() {
    let scratch = Scratch::new();
    for path in ["missing.elf", "/dev", "/dev/zero", "/proc/self/mem"] {
        scratch
            .run(&["run", "--kernel", path])
            .assert_refused(IMAGE, &[path]);
    }
}

#[test]
fn a_file_that_is_no_image_is_refused_with_what_it_is() {
    boot(b"").assert_refused(IMAGE, &["the file given with --kernel is empty"]);
    boot(b"#!/bin/sh\n").assert_refused(IMAGE, &["nor an ELF image", "10 bytes"]);
    boot(b"\x1f\x8b\x08\0").assert_refused(IMAGE, &["compressed", "gunzip"]);
}

#[test]
fn a_program_for_linux_is_refused_with_the_option_for_programs() {
    boot(causeway_initramfs::INIT).assert_refused(IMAGE, &["a program for Linux", "--program"]);
}

#[test]
fn an_image_for_another_machine_is_refused_with_what_it_is_for() {
    let image = || elf(&exit(0));
    boot(&changed(image(), MACHINE, &[183, 0]))
        .assert_refused(IMAGE, &["machine 183 (AArch64)", "x86-64"]);
    boot(&changed(image(), CLASS, &[1])).assert_refused(IMAGE, &["class 1", "64-bit"]);
}

#[test]
fn an_image_that_no_bare_guest_can_be_is_refused() {
    if !kvm("images of other kinds") {
        return;
    }
    let image = || elf(&exit(0));
    boot(&image()[..40]).assert_refused(IMAGE, &["truncated", "40"]);
    boot(&changed(image(), KIND, &[3, 0])).assert_refused(IMAGE, &["type 3", "-static"]);
    boot(&changed(image(), SEGMENT_KIND, &[3]))
        .assert_refused(IMAGE, &["dynamic linker", "-static"]);
}

#[test]
fn an_image_that_does_not_fit_into_memory_is_refused_with_the_way_out() {
    if !kvm("images that do not fit") {
        return;
    }
    let image = || elf(&exit(0));
    let large = changed(image(), SEGMENT_BYTES, &(1u64 << 30).to_le_bytes());
    boot(&large).assert_refused(IMAGE, &["0x40000000", "more memory"]);
    let endless = changed(image(), SEGMENT_BYTES, &u64::MAX.to_le_bytes());
    boot(&endless).assert_refused(IMAGE, &["0xffffffffffffffff"]);
    let place = |address: u64| {
        let moved = changed(image(), SEGMENT_VIRTUAL_ADDRESS, &address.to_le_bytes());
        boot(&changed(moved, SEGMENT_ADDRESS, &address.to_le_bytes()))
    };
    place(0).assert_refused(IMAGE, &["0x0", &format!("{IMAGE_BASE:#x}")]);
    place(u64::MAX - 0xfff).assert_refused(IMAGE, &["0xfffffffffffff000"]);
}

#[test]
fn an_image_that_contradicts_itself_is_refused() {
    if !kvm("images that contradict themselves") {
        return;
    }
    let image = || elf(&exit(0));
    let cut = changed(image(), SEGMENT_FILE_BYTES, &0x1000u64.to_le_bytes());
    boot(&changed(cut, SEGMENT_BYTES, &0x1000u64.to_le_bytes()))
        .assert_refused(IMAGE, &["truncated"]);
    boot(&changed(image(), SEGMENT_BYTES, &1u64.to_le_bytes()))
        .assert_refused(IMAGE, &["in memory"]);
    boot(&changed(image(), ENTRY, &0x50_0000u64.to_le_bytes()))
        .assert_refused(IMAGE, &["entry point 0x500000"]);
    let linked = changed(
        image(),
        SEGMENT_VIRTUAL_ADDRESS,
        &0x20_0000u64.to_le_bytes(),
    );
    boot(&linked).assert_refused(IMAGE, &["0x200000", "one to one"]);
}
