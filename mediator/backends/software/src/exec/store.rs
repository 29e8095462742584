//! Stores, volatile like the loads.
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked at once"
)]

use std::marker::PhantomData;

use super::Context;
use super::access::{Reach, lanes};
use super::coalesced::{Coalesced, store_adjacent};
use super::fault::AccessKind;
use super::lanes::{Bits, Body, Lane, compile};
use crate::isa::Isa;
use crate::program::{Exec, Op, Step};
use crate::registers::WARP;

/// Stores the low bits of a register: `[a + imm] = b` as `M`.
struct Store<R, M>(PhantomData<(R, M)>);

impl<R: Lane<Bits = R> + Narrow<M> + Bits, M: Copy + Default + 'static> Body for Store<R, M> {
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        // SAFETY: lowering gives `b` the class of R.
        let values = unsafe { *context.slot::<[R; WARP]>(op.b) };
        let mut cut = [M::default(); WARP];
        for lane in 0..WARP {
            cut[lane] = values[lane].narrow();
        }
        // SAFETY: by the contract of `Exec`.
        match unsafe { Coalesced::of::<M>(context, op, AccessKind::Store) } {
            Some(Coalesced::Adjacent(at)) => {
                // SAFETY: the access of each active lane was checked: range, alignment and rights.
                unsafe { store_adjacent(at, &cut, context.mask) };
                return Step::Next;
            }
            Some(Coalesced::Same(at)) => {
                for lane in lanes(context.mask) {
                    // SAFETY: as above.
                    unsafe { (at as *mut M).write_volatile(cut[lane]) };
                }
                return Step::Next;
            }
            Some(Coalesced::Own(at, stride)) => {
                for lane in lanes(context.mask) {
                    let own = (at + lane as u64 * stride) as *mut M;
                    // SAFETY: as above.
                    unsafe { own.write_volatile(cut[lane]) };
                }
                return Step::Next;
            }
            None => {}
        }
        // SAFETY: by the contract of `Exec`.
        let reach = unsafe { Reach::of::<AVX2>(context, op, size_of::<M>(), AccessKind::Store) };
        let Some(reach) = reach else {
            return Step::Fault;
        };
        for lane in lanes(context.mask) {
            // SAFETY: `reach` checked range, alignment and rights for this lane.
            unsafe { (reach.host(lane) as *mut M).write_volatile(cut[lane]) };
        }
        Step::Next
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
