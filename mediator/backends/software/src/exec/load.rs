//! Loads. Guests and other blocks write the same memory meanwhile: every access is volatile, of
//! natural size.
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked at once"
)]

use std::marker::PhantomData;

use super::Context;
use super::access::Reach;
use super::coalesced::{Coalesced, load_adjacent};
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
        let values = match unsafe { Coalesced::of::<M>(context, op, AccessKind::Load) } {
            // SAFETY: the access of each active lane was checked: range, alignment and rights.
            Some(Coalesced::Adjacent(at)) => unsafe { load_adjacent::<M>(at, context.mask) },
            // SAFETY: as above.
            Some(Coalesced::Same(at)) => return unsafe { Self::same(context, op, at) },
            Some(Coalesced::Own(at, stride)) => {
                // SAFETY: as above, for all lanes: each has local memory of the same size.
                unsafe { gather(|lane| at + lane as u64 * stride) }
            }
            None => {
                // SAFETY: by the contract of `Exec`.
                let reach =
                    unsafe { Reach::of::<AVX2>(context, op, size_of::<M>(), AccessKind::Load) };
                match reach {
                    None => return Step::Fault,
                    Some(reach) if reach.uniform => {
                        // SAFETY: `reach` checked range, alignment and rights.
                        return unsafe { Self::same(context, op, reach.host(0)) };
                    }
                    // SAFETY: as above, for all lanes: inactive ones repeat the address of an
                    // active one, or have it in local memory of their own.
                    Some(reach) => unsafe { gather(|lane| reach.host(lane)) },
                }
            }
        };
        let mut bits = [R::Bits::default(); WARP];
        for lane in 0..WARP {
            let value: M = values[lane];
            bits[lane] = value.widen().bits();
        }
        // SAFETY: lowering gives `dst` the class of R.
        unsafe { write_all(context, op.dst, &bits) };
        Step::Next
    }
}

impl<M: Element<R>, R: Lane> Load<M, R> {
    /// Loads the same value for all lanes.
    ///
    /// # Safety
    /// As `Exec`; the address can be loaded from.
    #[inline(always)]
    unsafe fn same(context: &Context<'_>, op: &Op, at: u64) -> Step {
        // SAFETY: by this function's contract.
        let value = unsafe { (at as *const M).read_volatile() };
        // SAFETY: lowering gives `dst` the class of R.
        unsafe { broadcast(context, op.dst, value.widen()) };
        Step::Next
    }
}

/// # Safety
/// `at` returns addresses that can be loaded from.
#[inline(always)]
unsafe fn gather<M: Copy + Default>(at: impl Fn(usize) -> u64) -> [M; WARP] {
    let mut values = [M::default(); WARP];
    for lane in 0..WARP {
        // SAFETY: by this function's contract.
        values[lane] = unsafe { (at(lane) as *const M).read_volatile() };
    }
    values
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
