//! Loads and stores of 16 bytes that no other processor sees in parts: programs agree on what they
//! publish by vectors with a state and a value in them, as CUB's scans do.
//!
//! A processor with AVX does each aligned access of 16 bytes at once (Intel 64 and IA-32
//! Architectures Software Developer's Manual, volume 3, "Guaranteed Atomic Operations"; AMD64
//! Architecture Programmer's Manual, volume 2, "Access Atomicity"). One without AVX may not. What
//! the back end itself shows to kernels, such as their parameters, is aligned to 8 bytes only, and
//! nobody agrees on anything there.

use std::arch::x86_64::__m128i;

use super::Context;
use super::access::{Reach, lanes};
use super::fault::AccessKind;
use super::lanes::{Body, compile};
use crate::isa::Isa;
use crate::program::{Exec, Op, Step};

const BYTES: usize = size_of::<__m128i>();

/// `dst, dst2 = [a + imm]`, 64 bits each.
struct Load;

impl Body for Load {
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        // SAFETY: by the contract of `Exec`.
        let reach = unsafe { Reach::of::<AVX2>(context, op, BYTES, AccessKind::Load) };
        let Some(reach) = reach else {
            return Step::Fault;
        };
        let halves = [context.slot::<u64>(op.dst), context.slot::<u64>(op.dst2)];
        for lane in lanes(context.mask) {
            // SAFETY: `reach` checked range and rights.
            let parts = unsafe { read(reach.host(lane)) };
            for (half, part) in halves.into_iter().zip(parts) {
                // SAFETY: lowering gives both the class of 64 bits.
                unsafe { half.add(lane).write(part) };
            }
        }
        Step::Next
    }
}

/// `[a + imm] = b, dst2`, 64 bits each.
struct Store;

impl Body for Store {
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        // SAFETY: by the contract of `Exec`.
        let reach = unsafe { Reach::of::<AVX2>(context, op, BYTES, AccessKind::Store) };
        let Some(reach) = reach else {
            return Step::Fault;
        };
        let (low, high) = (context.slot::<u64>(op.b), context.slot::<u64>(op.dst2));
        for lane in lanes(context.mask) {
            // SAFETY: lowering gives both the class of 64 bits.
            let parts = unsafe { [*low.add(lane), *high.add(lane)] };
            // SAFETY: `reach` checked range and rights.
            unsafe { write(reach.host(lane), parts) };
        }
        Step::Next
    }
}

/// # Safety
/// 16 bytes can be loaded from this address, a multiple of 8.
#[inline(always)]
unsafe fn read(at: u64) -> [u64; 2] {
    if at.is_multiple_of(BYTES as u64) {
        // SAFETY: by this function's contract; the address is aligned.
        let whole = unsafe { (at as *const __m128i).read_volatile() };
        // SAFETY: both have 16 bytes, and every value is one of both.
        return unsafe { std::mem::transmute::<__m128i, [u64; 2]>(whole) };
    }
    let half = at as *const u64;
    // SAFETY: by this function's contract.
    unsafe { [half.read_volatile(), half.add(1).read_volatile()] }
}

/// # Safety
/// 16 bytes can be stored at this address, a multiple of 8.
#[inline(always)]
unsafe fn write(at: u64, parts: [u64; 2]) {
    if at.is_multiple_of(BYTES as u64) {
        // SAFETY: both have 16 bytes, and every value is one of both.
        let whole = unsafe { std::mem::transmute::<[u64; 2], __m128i>(parts) };
        // SAFETY: by this function's contract; the address is aligned.
        return unsafe { (at as *mut __m128i).write_volatile(whole) };
    }
    let half = at as *mut u64;
    // SAFETY: by this function's contract.
    unsafe {
        half.write_volatile(parts[0]);
        half.add(1).write_volatile(parts[1]);
    }
}

/// The load of 16 bytes.
pub(crate) fn load() -> Exec {
    compile::<Load>(Isa::Baseline)
}

/// The store of 16 bytes.
pub(crate) fn store() -> Exec {
    compile::<Store>(Isa::Baseline)
}
