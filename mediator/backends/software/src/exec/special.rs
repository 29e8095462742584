//! Special registers (PTX ISA, chapter "Special Registers").

use std::sync::atomic::{AtomicU64, Ordering};

use super::Context;
use crate::clock;
use crate::program::{Op, Step};
use crate::registers::WARP;

crate::modifiers::modifiers! {
    /// Special registers of 32 bits by name; their numbers are `Op::imm`. A block is a cluster of
    /// its own.
    Special {
        ThreadX = "%tid.x" | "%tid",
        ThreadY = "%tid.y",
        ThreadZ = "%tid.z",
        ThreadsX = "%ntid.x" | "%ntid",
        ThreadsY = "%ntid.y",
        ThreadsZ = "%ntid.z",
        BlockX = "%ctaid.x" | "%ctaid" | "%clusterid.x",
        BlockY = "%ctaid.y" | "%clusterid.y",
        BlockZ = "%ctaid.z" | "%clusterid.z",
        BlocksX = "%nctaid.x" | "%nctaid" | "%nclusterid.x",
        BlocksY = "%nctaid.y" | "%nclusterid.y",
        BlocksZ = "%nctaid.z" | "%nclusterid.z",
        Lane = "%laneid",
        Warp = "%warpid",
        Warps = "%nwarpid",
        Zero = "%tid.w" | "%ctaid.w" | "%cluster_ctaid.x" | "%cluster_ctaid.y"
            | "%cluster_ctaid.z" | "%cluster_ctarank",
        One = "%ntid.w" | "%nctaid.w" | "%cluster_nctaid.x" | "%cluster_nctaid.y"
            | "%cluster_nctaid.z" | "%cluster_nctarank",
        MaskEqual = "%lanemask_eq",
        MaskLessEqual = "%lanemask_le",
        MaskLess = "%lanemask_lt",
        MaskGreaterEqual = "%lanemask_ge",
        MaskGreater = "%lanemask_gt",
        DynamicShared = "%dynamic_smem_size",
        TotalShared = "%total_smem_size" | "%aggr_smem_size",
        ClockLow = "%clock" | "%globaltimer_lo",
        ClockHigh = "%clock_hi" | "%globaltimer_hi",
        /// Where the local memory of the frame begins; not a register of PTX.
        LocalBase,
        Multiprocessor = "%smid",
        Multiprocessors = "%nsmid",
        WorkspaceHigh = "%envreg1",
        WorkspaceLow = "%envreg2",
    }
}

/// Reads the special register `imm` into the word `dst`.
pub(crate) unsafe fn word(context: &mut Context<'_>, op: &Op) -> Step {
    let register = Special::ALL[op.imm as usize % Special::ALL.len()];
    let values = values(context, register);
    context.set_words(op.dst, &values);
    Step::Next
}

fn values(context: &Context<'_>, register: Special) -> [u32; WARP] {
    let grid = context.grid;
    let thread = |axis: usize| grid.threads[context.warp as usize][axis];
    let lane = |value: fn(u32) -> u32| std::array::from_fn(|lane| value(lane as u32));
    let all = |value: u32| [value; WARP];
    let axis = register as usize % 3;
    use Special as S;
    match register {
        S::ThreadX | S::ThreadY | S::ThreadZ => thread(axis),
        S::ThreadsX | S::ThreadsY | S::ThreadsZ => all(grid.shape.block[axis]),
        S::BlockX | S::BlockY | S::BlockZ => all(context.block[axis]),
        S::BlocksX | S::BlocksY | S::BlocksZ => all(grid.shape.grid[axis]),
        S::Lane => lane(|l| l),
        S::Warp => all(context.warp),
        S::Warps => all(grid.threads.len() as u32),
        S::Zero => all(0),
        S::One => all(1),
        S::MaskEqual => lane(|l| 1 << l),
        S::MaskLessEqual => lane(|l| u32::MAX >> (31 - l)),
        S::MaskLess => lane(|l| !(u32::MAX << l)),
        S::MaskGreaterEqual => lane(|l| u32::MAX << l),
        S::MaskGreater => lane(|l| !(u32::MAX >> (31 - l))),
        S::DynamicShared => all(grid.shape.shared_bytes),
        S::TotalShared => all(context.shared.bytes),
        S::ClockLow => all(ticks() as u32),
        S::ClockHigh => all((ticks() >> 32) as u32),
        S::Multiprocessor => all(grid.multiprocessor(context.block)),
        S::Multiprocessors => all(grid.multiprocessors.of),
        S::WorkspaceHigh => all((grid.workspace >> 32) as u32),
        S::WorkspaceLow => all(grid.workspace as u32),
        S::LocalBase => all(context.frame.local),
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
