//! What is compiled of a kernel.

use std::sync::atomic::AtomicBool;

use crate::isa::Isa;
use crate::lower::{self, Variables};
use crate::ptx;

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

/// Where runs begin, and how long they are.
fn runs(body: &str) -> Vec<(usize, u32)> {
    let mut program = [program(body)];
    let mut compiler = Compiler::default();
    compiler.kernel(&mut program[0]);
    compiler.finish(&mut program);
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
    let mut compiler = Compiler::default();
    let mut programs = ["add.u32 %r1, %r1, %r2;".repeat(3), String::new()].map(|it| program(&it));
    let bytes = programs.each_mut().map(|program| compiler.kernel(program));
    assert!(
        bytes[0] > 0 && bytes[1] == 0,
        "the second has nothing to compile"
    );
    assert!(compiler.has_code());
    compiler.finish(&mut programs);
    let parts = programs.map(|program| program.compiled.unwrap().bytes() as u64);
    assert_eq!(parts, bytes);
}

#[test]
fn nothing_is_mapped_without_a_run() {
    let mut compiler = Compiler::default();
    let mut programs = [program("add.u32 %r1, %r1, %r2;")];
    compiler.kernel(&mut programs[0]);
    assert!(!compiler.has_code());
    compiler.finish(&mut programs);
    assert!(programs[0].compiled.is_none());
}
