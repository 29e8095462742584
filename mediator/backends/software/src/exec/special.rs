//! Special registers (PTX ISA, chapter "Special Registers").

use std::sync::atomic::{AtomicU64, Ordering};

use super::Context;
use crate::clock;
use crate::program::{Op, Step};
use crate::registers::WARP;

/// Special registers, as `Op::imm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Special {
    ThreadX,
    ThreadY,
    ThreadZ,
    ThreadsX,
    ThreadsY,
    ThreadsZ,
    BlockX,
    BlockY,
    BlockZ,
    BlocksX,
    BlocksY,
    BlocksZ,
    Lane,
    Warp,
    Warps,
    Zero,
    One,
    MaskEqual,
    MaskLessEqual,
    MaskLess,
    MaskGreaterEqual,
    MaskGreater,
    DynamicShared,
    TotalShared,
    ClockLow,
    ClockHigh,
    LocalBase,
    Multiprocessor,
    Multiprocessors,
}

/// Reads the special register `imm` into the word `dst`.
pub(crate) unsafe fn word(context: &mut Context<'_>, op: &Op) -> Step {
    let values = values(context, op.imm);
    context.set_words(op.dst, &values);
    Step::Next
}

fn values(context: &Context<'_>, register: u64) -> [u32; WARP] {
    let grid = context.grid;
    let thread = |axis: usize| grid.threads[context.warp as usize][axis];
    let lane = |value: fn(u32) -> u32| std::array::from_fn(|lane| value(lane as u32));
    let all = |value: u32| [value; WARP];
    use Special as S;
    const fn is(register: u64, wanted: Special) -> bool {
        register == wanted as u64
    }
    let axis = (register % 3) as usize;
    match register {
        r if r <= S::ThreadZ as u64 => thread(axis),
        r if r <= S::ThreadsZ as u64 => all(grid.shape.block[axis]),
        r if r <= S::BlockZ as u64 => all(context.block[axis]),
        r if r <= S::BlocksZ as u64 => all(grid.shape.grid[axis]),
        r if is(r, S::Lane) => lane(|l| l),
        r if is(r, S::Warp) => all(context.warp),
        r if is(r, S::Warps) => all(grid.threads.len() as u32),
        r if is(r, S::One) => all(1),
        r if is(r, S::MaskEqual) => lane(|l| 1 << l),
        r if is(r, S::MaskLessEqual) => lane(|l| u32::MAX >> (31 - l)),
        r if is(r, S::MaskLess) => lane(|l| !(u32::MAX << l)),
        r if is(r, S::MaskGreaterEqual) => lane(|l| u32::MAX << l),
        r if is(r, S::MaskGreater) => lane(|l| !(u32::MAX >> (31 - l))),
        r if is(r, S::DynamicShared) => all(grid.shape.shared_bytes),
        r if is(r, S::TotalShared) => all(context.shared.bytes),
        r if is(r, S::ClockLow) => all(ticks() as u32),
        r if is(r, S::ClockHigh) => all((ticks() >> 32) as u32),
        r if is(r, S::Multiprocessor) => all(grid.multiprocessor(context.block)),
        r if is(r, S::Multiprocessors) => all(grid.multiprocessors.of),
        r if is(r, S::LocalBase) => all(context.frame.local),
        _ => all(0),
    }
}

/// Reads `%globaltimer` into the double `dst`.
pub(crate) unsafe fn timer(context: &mut Context<'_>, op: &Op) -> Step {
    double(context, op, clock::now_ns())
}

/// Reads `%clock64` into the double `dst`.
pub(crate) unsafe fn clock(context: &mut Context<'_>, op: &Op) -> Step {
    double(context, op, ticks())
}

/// `membar`, `fence`: orders this warp's accesses as seen by everybody.
pub(crate) unsafe fn fence(_context: &mut Context<'_>, _op: &Op) -> Step {
    std::sync::atomic::fence(Ordering::SeqCst);
    Step::Next
}

fn double(context: &Context<'_>, op: &Op, value: u64) -> Step {
    // SAFETY: lowering gives `dst` a double register in the bound frame.
    unsafe { super::lanes::broadcast(context, op.dst, value) };
    Step::Next
}

/// A clock that counts on with every reading, so that differences are never zero.
fn ticks() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = clock::now_ns();
    let last = LAST.fetch_max(now, Ordering::Relaxed);
    if now > last {
        now
    } else {
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }
}
