//! Coalesced accesses: the active lanes use adjacent addresses, or one address. One check covers
//! all lanes. Most accesses of most kernels are of this kind; [`super::access`] does the others.
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked at once"
)]

use std::arch::x86_64::__m128i;

use super::Context;
use super::access::{Access, WORD_ADDRESS, lanes, window};
use super::fault::AccessKind;
use crate::program::Op;
use crate::registers::WARP;

/// Host addresses of a coalesced access, which has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coalesced {
    /// The lanes use adjacent addresses. This is the one that lane 0 has or would have: it is valid
    /// for active lanes only.
    Adjacent(u64),
    /// All active lanes use this address.
    Same(u64),
    /// Each lane uses the same address of its own local memory. These are the host address for
    /// lane 0 and the distance from one lane to the next. They are valid for all 32 lanes: each has
    /// local memory of the same size.
    Own(u64, u64),
}

impl Coalesced {
    /// Returns where the active lanes access an `M` each, if the accesses are coalesced and all of
    /// them are allowed. `None` says nothing: the addresses may be others, or an access may be a
    /// fault.
    ///
    /// # Safety
    /// As `Exec`: the operation is one of the program, and its frame is bound.
    #[inline(always)]
    pub(super) unsafe fn of<M>(
        context: &mut Context<'_>,
        op: &Op,
        kind: AccessKind,
    ) -> Option<Self> {
        let bytes = size_of::<M>() as u64;
        // SAFETY: by this function's contract; lowering gives the address a register of this class.
        let pattern = unsafe {
            match (op.c.0 & WORD_ADDRESS, context.mask) {
                (0, u32::MAX) => pattern::<u64, M>(context.slot(op.a))?,
                (_, u32::MAX) => pattern::<u32, M>(context.slot(op.a))?,
                (0, mask) => pattern_of_some::<u64>(context.slot(op.a), mask, bytes)?,
                (_, mask) => pattern_of_some::<u32>(context.slot(op.a), mask, bytes)?,
            }
        };
        let (host, stride) = check(context, op, pattern, Access { bytes, kind })?;
        let coalesced = match (pattern.step, stride) {
            (0, 0) => Self::Same(host),
            (0, stride) => Self::Own(host, stride),
            (_, 0) => Self::Adjacent(host.wrapping_sub(u64::from(pattern.lanes.0) * bytes)),
            _ => return None,
        };
        #[cfg(test)]
        super::access::tests::count_coalesced();
        Some(coalesced)
    }
}

/// Addresses of a coalesced access, to which the offset of the access is yet to be added.
#[derive(Clone, Copy)]
struct Pattern {
    /// The first and the last active lane.
    lanes: (u32, u32),
    /// Address of the first one.
    first: u64,
    /// Distance from each lane to the next: the size of what is accessed, or 0.
    step: u64,
}

/// Returns the pattern of the addresses if all lanes are active.
///
/// # Safety
/// There are 32 addresses.
#[inline(always)]
unsafe fn pattern<A: Copy + Into<u64>, M>(at: *const A) -> Option<Pattern> {
    // SAFETY: by this function's contract; `lane` is below 32 wherever this is called.
    let address = |lane: usize| -> u64 { unsafe { at.add(lane).read() }.into() };
    let (first, last) = (address(0), address(WARP - 1));
    let coalesced = |step| Pattern {
        lanes: (0, WARP as u32 - 1),
        first,
        step,
    };
    let mut differs = 0;
    if last == first {
        for lane in 0..WARP {
            differs |= address(lane) ^ first;
        }
        return (differs == 0).then_some(coalesced(0));
    }
    if last.wrapping_sub(first) != ((WARP - 1) * size_of::<M>()) as u64 {
        return None;
    }
    for lane in 0..WARP {
        differs |= address(lane) ^ first.wrapping_add((lane * size_of::<M>()) as u64);
    }
    (differs == 0).then_some(coalesced(size_of::<M>() as u64))
}

/// Returns the pattern of the addresses of the lanes in `mask`, which is not 0, for accesses of
/// `bytes` bytes.
///
/// # Safety
/// There are 32 addresses.
#[inline(never)]
unsafe fn pattern_of_some<A>(at: *const A, mask: u32, bytes: u64) -> Option<Pattern>
where
    A: Copy + Into<u64>,
{
    // SAFETY: by this function's contract.
    let address = |lane: u32| -> u64 { unsafe { at.add(lane as usize & 31).read() }.into() };
    let lanes = (mask.trailing_zeros() & 31, 31 - mask.leading_zeros() % 32);
    let (first, last) = (address(lanes.0), address(lanes.1));
    let step = match last.wrapping_sub(first) {
        0 => 0,
        distance if distance == u64::from(lanes.1 - lanes.0) * bytes => bytes,
        _ => return None,
    };
    let mut expected = first.wrapping_sub(u64::from(lanes.0) * step);
    let mut differs = 0;
    for lane in 0..WARP as u32 {
        let active = u64::from(mask >> lane & 1).wrapping_neg();
        differs |= (address(lane) ^ expected) & active;
        expected = expected.wrapping_add(step);
    }
    (differs == 0).then_some(Pattern { lanes, first, step })
}

/// Returns the host address of the first active lane's access, and 0, if the accesses of all active
/// lanes are allowed. In local memory, returns the host address of lane 0's, and the distance from
/// each lane's memory to that of the next.
///
/// The kernel's addresses are checked for their alignment. Host addresses have the same, because
/// mappings begin at pages, and shared and local memory at multiples of 16.
#[inline(never)]
fn check(
    context: &mut Context<'_>,
    op: &Op,
    Pattern { lanes, first, step }: Pattern,
    access: Access,
) -> Option<(u64, u64)> {
    let is_word = op.c.0 & WORD_ADDRESS != 0;
    let low = match is_word {
        true => u64::from((first as u32).wrapping_add(op.imm as u32)),
        false => first.wrapping_add(op.imm),
    };
    let high = low.checked_add(step * u64::from(lanes.1 - lanes.0))?;
    // Behind 2^32, lanes are at the beginning again.
    if is_word && high > u32::MAX.into() {
        return None;
    }
    if (low | step) & u64::from(op.d.0) != 0 {
        return None;
    }
    let (bias, stride) = window(context, op, (low, high), access)?;
    Some((low.wrapping_add(bias), stride))
}

/// Loads the values of the lanes in `mask` from adjacent addresses; those of other lanes are zero.
/// `at` is the address for lane 0. No value is seen in parts: it lies whole in one aligned access
/// of 16 bytes, or in one of its own size.
///
/// # Safety
/// Those in `mask` can be loaded, and are at multiples of their size, which is 1, 2, 4 or 8 bytes.
#[inline(always)]
pub(super) unsafe fn load_adjacent<M: Copy + Default>(at: u64, mask: u32) -> [M; WARP] {
    let mut values = [M::default(); WARP];
    if mask != u32::MAX || !at.is_multiple_of(size_of::<__m128i>() as u64) {
        for lane in lanes(mask) {
            let beside = at.wrapping_add((lane * size_of::<M>()) as u64) as *const M;
            // SAFETY: by this function's contract.
            values[lane] = unsafe { beside.read_volatile() };
        }
        return values;
    }
    let (row, to) = (at as *const __m128i, values.as_mut_ptr().cast::<__m128i>());
    for part in 0..size_of::<[M; WARP]>() / size_of::<__m128i>() {
        // SAFETY: by this function's contract; the values are as large, and written unaligned.
        unsafe { to.add(part).write_unaligned(row.add(part).read_volatile()) };
    }
    values
}

/// Stores the values of the lanes in `mask` at adjacent addresses, as [`load_adjacent`] loads them.
///
/// # Safety
/// Those in `mask` can be stored, and are at multiples of their size, which is 1, 2, 4 or 8 bytes.
#[inline(always)]
pub(super) unsafe fn store_adjacent<M: Copy>(at: u64, values: &[M; WARP], mask: u32) {
    if mask != u32::MAX || !at.is_multiple_of(size_of::<__m128i>() as u64) {
        for lane in lanes(mask) {
            let beside = at.wrapping_add((lane * size_of::<M>()) as u64) as *mut M;
            // SAFETY: by this function's contract.
            unsafe { beside.write_volatile(values[lane]) };
        }
        return;
    }
    let (from, row) = (values.as_ptr().cast::<__m128i>(), at as *mut __m128i);
    for part in 0..size_of::<[M; WARP]>() / size_of::<__m128i>() {
        // SAFETY: by this function's contract; the values are as large, and read unaligned.
        unsafe {
            row.add(part)
                .write_volatile(from.add(part).read_unaligned())
        };
    }
}
