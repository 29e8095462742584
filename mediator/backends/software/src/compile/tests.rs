//! What is compiled of a kernel.

use std::sync::atomic::AtomicBool;

use crate::isa::Isa;
use crate::lower::{self, Variables};
use crate::ptx;
use crate::registers::Slot;

use super::*;

/// A kernel with this body, without operations that have nothing to do with it.
fn program(body: &str) -> Program {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {{\n\
         .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<8>;\n{body}\nret;\n}}\n"
    );
    let trees = ptx::parse_all(&[text.as_str()])
        .map_err(|(_, e)| e)
        .unwrap();
    let variables = Variables::new(&trees, 0).unwrap();
    let stop = AtomicBool::new(false);
    let isa = Isa::detect();
    let programs = lower::lower(&trees, &variables, isa, &stop, |_| Ok(()));
    programs.unwrap().pop().unwrap()
}

/// What is compiled of `programs`.
fn compiler(programs: &mut [Program]) -> Compiler<'static> {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let mut compiler = Compiler::new(&GOES_ON);
    for program in programs {
        compiler.kernel(program);
    }
    compiler
}

/// Where runs begin, and how long they are.
fn runs(body: &str) -> Vec<(usize, u32)> {
    let mut program = [program(body)];
    let compiler = compiler(&mut program);
    assert!(compiler.finish(&mut program));
    let [program] = program;
    let Some(compiled) = program.compiled else {
        return Vec::new();
    };
    let begins = program
        .code
        .iter()
        .enumerate()
        .filter(|(_, op)| op.run != 0);
    begins
        .map(|(at, op)| (at, compiled.part.runs[op.run as usize - 1].length))
        .collect()
}

#[test]
fn what_only_computes_is_a_run() {
    let three = "add.u32 %r1, %r2, %r3; mul.lo.u32 %r1, %r1, %r1; mul.wide.u32 %d1, %r1, %r1;";
    assert_eq!(runs(three), [(0, 3)]);
    assert_eq!(runs("add.u32 %r1, %r2, %r3;"), [], "it is not worth a call");
    let guarded = format!("{three} @%p1 add.u32 %r1, %r2, %r3; {three}");
    assert_eq!(runs(&guarded), [(0, 7)]);
    for other in [
        "@%p1 shl.b64 %d1, %d1, %r1;",
        "@%p1 setp.eq.u32 %p2, %r1, %r2;",
    ] {
        let parted = format!("{three} {other} {three}");
        assert_eq!(runs(&parted), [(0, 3), (4, 3)], "{other}");
    }
}

#[test]
fn lanes_may_meet_at_a_label_but_not_in_a_run() {
    let two = "add.u32 %r1, %r2, %r3; add.u32 %r1, %r1, %r3;";
    let runs = runs(&format!("{two} to: {two} @%p1 bra to; {two}"));
    assert_eq!(runs, [(0, 2), (2, 2), (5, 2)]);
}

#[test]
fn each_kernel_has_its_part_of_the_code() {
    let sum = "add.u32 %r1, %r1, %r2;".repeat(3);
    let mut programs = [sum.as_str(), "", sum.as_str()].map(program);
    let stop = AtomicBool::new(false);
    let mut compiler = Compiler::new(&stop);
    let bytes = programs.each_mut().map(|program| compiler.kernel(program));
    assert!(
        bytes[0] > 0 && bytes == [bytes[0], 0, bytes[0]],
        "{bytes:?}"
    );
    assert!(compiler.has_code() && compiler.finish(&mut programs));
    let parts = programs.map(|program| program.compiled.unwrap());
    assert_eq!(parts.each_ref().map(|part| part.bytes() as u64), bytes);
    assert!(parts[0].part.runs[0].entry < parts[2].part.runs[0].entry);
}

#[test]
fn nothing_is_mapped_without_a_run() {
    let mut programs = [program("add.u32 %r1, %r1, %r2;")];
    assert!(!compiler(&mut programs).has_code());
}

#[test]
fn what_cannot_be_encoded_leaves_the_module_to_the_interpreter() {
    let sum = "add.u64 %d1, %d1, %d2;".repeat(3);
    let mut programs = [&sum, &sum].map(|body| program(body));
    // No frame is so large.
    programs[1].code[1].a = Slot(0x7fff_ffff);
    let compiler = compiler(&mut programs);
    assert!(!compiler.has_code());
    assert!(compiler.finish(&mut programs));
    assert!(programs.iter().all(|program| program.compiled.is_none()));
}

#[test]
fn a_load_that_ends_early_compiles_nothing() {
    let mut programs = [program(&"add.u32 %r1, %r1, %r2;".repeat(3))];
    let stop = AtomicBool::new(true);
    let mut compiler = Compiler::new(&stop);
    assert_eq!(compiler.kernel(&mut programs[0]), 0);
    assert!(!compiler.has_code());
}
