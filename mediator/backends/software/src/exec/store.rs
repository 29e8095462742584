//! Stores, volatile like the loads.
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked at once"
)]

use std::arch::x86_64::__m128i;
use std::marker::PhantomData;

use super::Context;
use super::access::{Reach, lanes};
use super::fault::AccessKind;
use super::lanes::{Bits, Body, Lane, compile};
use super::load::is_row;
use crate::isa::Isa;
use crate::program::{Exec, Op, Step};
use crate::registers::WARP;

/// Stores the low bits of a register: `[a + imm] = b` as `M`.
struct Store<R, M>(PhantomData<(R, M)>);

impl<R: Lane<Bits = R> + Narrow<M> + Bits, M: Copy + Default + 'static> Body for Store<R, M> {
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        // SAFETY: by the contract of `Exec`.
        let reach = unsafe { Reach::of::<AVX2>(context, op, size_of::<M>(), AccessKind::Store) };
        let Some(reach) = reach else {
            return Step::Fault;
        };
        // SAFETY: lowering gives `b` the class of R.
        let values = unsafe { *context.slot::<[R; WARP]>(op.b) };
        let mut cut = [M::default(); WARP];
        for lane in 0..WARP {
            cut[lane] = values[lane].narrow();
        }
        let values = cut;
        if context.mask == u32::MAX && is_row::<M>(&reach.at) {
            // SAFETY: `reach` checked range, alignment and rights for the whole row.
            unsafe { store_row(reach.at[0], &values) };
            return Step::Next;
        }
        for lane in lanes(context.mask) {
            // SAFETY: as above, for this lane.
            unsafe { (reach.at[lane] as *mut M).write_volatile(values[lane]) };
        }
        Step::Next
    }
}

/// # Safety
/// 32 values can be stored at `at`, which is a multiple of 16.
#[inline(always)]
unsafe fn store_row<M>(at: u64, values: &[M; WARP]) {
    let from = values.as_ptr().cast::<__m128i>();
    let to = at as *mut __m128i;
    for part in 0..size_of::<[M; WARP]>() / size_of::<__m128i>() {
        // SAFETY: by this function's contract; the values are as large, and read unaligned.
        unsafe { to.add(part).write_volatile(from.add(part).read_unaligned()) };
    }
}

/// What can be cut down to `M`.
pub(crate) trait Narrow<M> {
    /// Keeps the low bits.
    fn narrow(self) -> M;
}

macro_rules! narrow {
    ($($register:ty => $($memory:ty),+;)*) => {$($(
        impl Narrow<$memory> for $register {
            #[inline(always)]
            fn narrow(self) -> $memory {
                self as $memory
            }
        }
    )+)*};
}

narrow! {
    u32 => u8, u16, u32;
    u64 => u8, u16, u32, u64;
}

/// The store of `M` from a register of `R`.
pub(crate) fn store<R, M>(isa: Isa) -> Exec
where
    R: Lane<Bits = R> + Narrow<M> + Bits,
    M: Copy + Default + 'static,
{
    compile::<Store<R, M>>(isa)
}
