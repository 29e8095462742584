//! Loads. Guests and other blocks write the same memory meanwhile: every access is volatile, of
//! natural size.
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked at once"
)]

use std::arch::x86_64::__m128i;
use std::marker::PhantomData;

use super::Context;
use super::access::Reach;
use super::fault::AccessKind;
use super::lanes::{Body, Lane, broadcast, compile, write_all};
use crate::isa::Isa;
use crate::program::{Exec, Op, Step};
use crate::registers::WARP;

/// Loads `M` and widens it to a register of `R`: `dst = [a + imm]`.
struct Load<M, R>(PhantomData<(M, R)>);

impl<M: Element<R>, R: Lane> Body for Load<M, R> {
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        // SAFETY: by the contract of `Exec`.
        let reach = unsafe { Reach::of::<AVX2>(context, op, size_of::<M>(), AccessKind::Load) };
        let Some(Reach { at, uniform }) = reach else {
            return Step::Fault;
        };
        if uniform {
            // SAFETY: `reach` checked range, alignment and rights.
            let value = unsafe { (at[0] as *const M).read_volatile() };
            // SAFETY: lowering gives `dst` the class of R.
            unsafe { broadcast(context, op.dst, value.widen()) };
            return Step::Next;
        }
        // SAFETY: as above, for all lanes: inactive ones repeat the address of an active one.
        let values = unsafe { gather::<M>(&at) };
        let mut bits = [R::Bits::default(); WARP];
        for lane in 0..WARP {
            bits[lane] = values[lane].widen().bits();
        }
        // SAFETY: lowering gives `dst` the class of R.
        unsafe { write_all(context, op.dst, &bits) };
        Step::Next
    }
}

/// # Safety
/// Every address can be loaded from.
#[inline(always)]
unsafe fn gather<M: Copy + Default>(at: &[u64; WARP]) -> [M; WARP] {
    let mut values = [M::default(); WARP];
    if is_row::<M>(at) {
        let row = at[0] as *const __m128i;
        let to = values.as_mut_ptr().cast::<__m128i>();
        for part in 0..size_of::<[M; WARP]>() / size_of::<__m128i>() {
            // SAFETY: the row is contiguous and aligned to 16 bytes; the values are as large,
            // written unaligned.
            unsafe { to.add(part).write_unaligned(row.add(part).read_volatile()) };
        }
        return values;
    }
    for lane in 0..WARP {
        // SAFETY: by this function's contract.
        values[lane] = unsafe { (at[lane] as *const M).read_volatile() };
    }
    values
}

/// Returns whether 32 lanes access one contiguous row that can be moved 16 bytes at a time.
#[inline(always)]
pub(super) fn is_row<M>(at: &[u64; WARP]) -> bool {
    // Most accesses that are no rows are found out by their last lane.
    let last = at[0].wrapping_add(((WARP - 1) * size_of::<M>()) as u64);
    if at[WARP - 1] != last || at[0] & 15 != 0 {
        return false;
    }
    let mut differs = 0;
    for lane in 0..WARP {
        differs |= at[lane] ^ at[0].wrapping_add((lane * size_of::<M>()) as u64);
    }
    differs == 0
}

/// What can be in memory and be widened to a register of `R`.
pub(crate) trait Element<R>: Copy + Default + 'static {
    /// Extends it with zeros or with its sign.
    fn widen(self) -> R;
}

macro_rules! element {
    ($($memory:ty => $($register:ty),+;)*) => {$($(
        impl Element<$register> for $memory {
            #[inline(always)]
            fn widen(self) -> $register {
                self as $register
            }
        }
    )+)*};
}

element! {
    u8 => u32, u64;
    i8 => i32, i64;
    u16 => u32, u64;
    i16 => i32, i64;
    u32 => u32, u64;
    i32 => i64;
    u64 => u64;
}

/// The load of `M` into `R`.
pub(crate) fn load<M: Element<R>, R: Lane>(isa: Isa) -> Exec {
    compile::<Load<M, R>>(isa)
}

/// Loads a kernel parameter at the constant offset `imm`, which lowering has checked.
struct Parameter<M, R>(PhantomData<(M, R)>);

impl<M: Element<R>, R: Lane> Body for Parameter<M, R> {
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        debug_assert!(op.imm as usize + size_of::<M>() <= context.parameters.bytes as usize);
        let at = context.parameters.base.wrapping_add(op.imm as usize);
        // SAFETY: lowering checked the offset against the parameter block, which is this process's
        // own copy.
        unsafe { broadcast(context, op.dst, at.cast::<M>().read_unaligned().widen()) };
        Step::Next
    }
}

/// The load of a kernel parameter at a constant offset.
pub(crate) fn parameter<M: Element<R>, R: Lane>() -> Exec {
    compile::<Parameter<M, R>>(Isa::Baseline)
}
