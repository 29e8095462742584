//! Atomic read-modify-write operations: the host's own compare-and-swap, lane after lane.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::Context;
use super::access::{Reach, lanes};
use super::fault::AccessKind;
use super::lanes::{Bits, Body, Lane, closure, compile};
use crate::isa::Isa;
use crate::program::{Exec, Op, Step};
use crate::registers::Slot;

/// An integer type on which the host has atomic operations.
pub(crate) trait Cell: Copy + PartialEq + 'static {
    /// Replaces the value at `at` by `change` of it; gives the old one.
    ///
    /// # Safety
    /// `at` is aligned, and can be loaded and stored.
    unsafe fn update(at: *mut Self, change: impl Fn(Self) -> Self) -> Self;
}

macro_rules! cell {
    ($($type:ty: $atomic:ty;)*) => {$(
        impl Cell for $type {
            #[inline(always)]
            unsafe fn update(at: *mut Self, change: impl Fn(Self) -> Self) -> Self {
                // SAFETY: by this function's contract; an atomic may be written by others.
                let cell = unsafe { <$atomic>::from_ptr(at) };
                let mut old = cell.load(Ordering::Relaxed);
                loop {
                    let new = change(old);
                    match cell.compare_exchange_weak(
                        old,
                        new,
                        Ordering::SeqCst,
                        Ordering::Relaxed,
                    ) {
                        Ok(was) => return was,
                        Err(is) => old = is,
                    }
                }
            }
        }
    )*};
}

cell! {
    u16: AtomicU16;
    u32: AtomicU32;
    u64: AtomicU64;
}

/// `Op::dst` of an operation without a result (`red`): the header of the frame, which is not a
/// register.
pub(crate) const NO_RESULT: Slot = Slot(0);

/// `dst = [a + imm]; [a + imm] = function(old, b, dst2)`, with `dst2` as a third source.
struct Atomic<M, R, F>(PhantomData<(M, R, F)>);

impl<M, R, F> Body for Atomic<M, R, F>
where
    M: Cell + TryFrom<R> + Into<R>,
    R: Bits + Lane<Bits = R>,
    F: Fn(R, R, R) -> R + Copy + 'static,
{
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        let function = closure::<F>();
        // SAFETY: by the contract of `Exec`.
        let reach = unsafe { Reach::of::<AVX2>(context, op, size_of::<M>(), AccessKind::Atomic) };
        let Some(reach) = reach else {
            return Step::Fault;
        };
        let (b, c) = (context.slot::<R>(op.b), context.slot::<R>(op.dst2));
        let target = context.slot::<R>(op.dst);
        for lane in lanes(context.mask) {
            // SAFETY: lowering gives the operands the class of R.
            let (b, c) = unsafe { (*b.add(lane), *c.add(lane)) };
            let change = |old: M| {
                let new = function(old.into(), b, c);
                M::try_from(new).unwrap_or(old)
            };
            // SAFETY: `reach` checked range, alignment and rights.
            let old = unsafe { M::update(reach.host(lane) as *mut M, change) };
            if op.dst != NO_RESULT {
                // SAFETY: as above.
                unsafe { *target.add(lane) = old.into() };
            }
        }
        Step::Next
    }
}

/// An atomic operation on `M`, computed in `R` by `function(old, b, c)`, whose result must fit `M`.
/// Lanes take turns anyway, so that vector instructions would not help.
pub(crate) fn atomic<M, R, F>(_function: F) -> Exec
where
    M: Cell + TryFrom<R> + Into<R>,
    R: Bits + Lane<Bits = R>,
    F: Fn(R, R, R) -> R + Copy + 'static,
{
    compile::<Atomic<M, R, F>>(Isa::Baseline)
}
