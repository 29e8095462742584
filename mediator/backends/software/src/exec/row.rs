//! Accesses that need no look at each lane: the active lanes are beside each other, or all at one
//! place. Most accesses of most kernels are one of these.
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

/// Host addresses of what the active lanes of a warp access, which have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// That of lane 0; those of all others follow without a gap. All lanes are active.
    Beside(u64),
    /// The same of some active lanes: those of others are no addresses.
    Partly(u64),
    /// That of all lanes.
    Same(u64),
    /// That of lane 0, and the distance to the next: one place of each lane's own memory, also of
    /// those that are not active.
    Own(u64, u64),
}

impl Row {
    /// Returns where the active lanes access an `M` each, if the accesses are a row and all of them
    /// are allowed. `None` says nothing: the lanes may be elsewhere, or an access may be a fault.
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
        let lane_0 = host.wrapping_sub(u64::from(pattern.lanes.0) * bytes);
        match (pattern.step, stride) {
            (0, 0) => Some(Self::Same(host)),
            (0, stride) => Some(Self::Own(host, stride)),
            (_, 0) if context.mask == u32::MAX => Some(Self::Beside(host)),
            (_, 0) => Some(Self::Partly(lane_0)),
            _ => None,
        }
    }
}

/// Addresses of a row, to which the offset of the access is yet to be added.
#[derive(Clone, Copy)]
struct Pattern {
    /// The first and the last active lane.
    lanes: (u32, u32),
    /// Address of the first one.
    first: u64,
    /// Distance from each lane to the next: the size of what is accessed, or 0.
    step: u64,
}

/// An address in a register.
trait Address: Copy {
    fn value(self) -> u64;
}

impl Address for u32 {
    #[inline(always)]
    fn value(self) -> u64 {
        self.into()
    }
}

impl Address for u64 {
    #[inline(always)]
    fn value(self) -> u64 {
        self
    }
}

/// Returns the pattern of the addresses if all lanes are active. No address is above a later one.
///
/// # Safety
/// There are 32 addresses.
#[inline(always)]
unsafe fn pattern<A: Address, M>(at: *const A) -> Option<Pattern> {
    // SAFETY: by this function's contract; `lane` is below 32 wherever this is called.
    let address = |lane: usize| unsafe { at.add(lane).read() }.value();
    let (first, last) = (address(0), address(WARP - 1));
    let row = |step| Pattern {
        lanes: (0, WARP as u32 - 1),
        first,
        step,
    };
    let mut differs = 0;
    if last == first {
        for lane in 0..WARP {
            differs |= address(lane) ^ first;
        }
        return (differs == 0).then_some(row(0));
    }
    if last.wrapping_sub(first) != ((WARP - 1) * size_of::<M>()) as u64 || last < first {
        return None;
    }
    for lane in 0..WARP {
        differs |= address(lane) ^ first.wrapping_add((lane * size_of::<M>()) as u64);
    }
    (differs == 0).then_some(row(size_of::<M>() as u64))
}

/// Returns the pattern of the addresses of the lanes in `mask`, which are some, for accesses of
/// `bytes` bytes.
///
/// # Safety
/// There are 32 addresses.
#[inline(never)]
unsafe fn pattern_of_some<A: Address>(at: *const A, mask: u32, bytes: u64) -> Option<Pattern> {
    // SAFETY: by this function's contract; `lane` is below 32 wherever this is called.
    let address = |lane: u32| unsafe { at.add(lane as usize & 31).read() }.value();
    let lanes = (mask.trailing_zeros() & 31, 31 - mask.leading_zeros() % 32);
    let (first, last) = (address(lanes.0), address(lanes.1));
    let span = u64::from(lanes.1 - lanes.0) * bytes;
    let step = match last.checked_sub(first)? {
        0 => 0,
        distance if distance == span => bytes,
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
#[inline(never)]
fn check(
    context: &mut Context<'_>,
    op: &Op,
    Pattern { lanes, first, step }: Pattern,
    access: Access,
) -> Option<(u64, u64)> {
    let is_word = op.c.0 & WORD_ADDRESS != 0;
    let span = step * u64::from(lanes.1 - lanes.0);
    let low = match is_word {
        true => u64::from((first as u32).wrapping_add(op.imm as u32)),
        false => first.wrapping_add(op.imm),
    };
    let high = low.checked_add(span)?;
    // Lanes may wrap around, and addresses with the top bit set are valid nowhere.
    let last = if is_word {
        u64::from(u32::MAX)
    } else {
        i64::MAX as u64
    };
    if high > last {
        return None;
    }
    if (low | step) & u64::from(op.d.0) != 0 {
        return None;
    }
    let (bias, stride) = window(context, op, (low, high), access)?;
    #[cfg(test)]
    super::access::tests::count_row();
    Some((low.wrapping_add(bias), stride))
}

/// Loads 32 values that lie beside each other, each at once.
///
/// # Safety
/// They can be loaded, and the address is a multiple of their size, which is 1, 2, 4 or 8 bytes.
#[inline(always)]
pub(super) unsafe fn load_row<M: Copy + Default>(at: u64) -> [M; WARP] {
    let mut values = [M::default(); WARP];
    if !at.is_multiple_of(size_of::<__m128i>() as u64) {
        for lane in 0..WARP {
            // SAFETY: by this function's contract.
            values[lane] = unsafe { (at as *const M).add(lane).read_volatile() };
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

/// Loads those of 32 values beside each other that are in `mask`; the others are zero. `at` is the
/// address of the first one, in `mask` or not.
///
/// # Safety
/// As for [`load_row`], for those in `mask`.
#[inline(always)]
pub(super) unsafe fn load_some<M: Copy + Default>(at: u64, mask: u32) -> [M; WARP] {
    let mut values = [M::default(); WARP];
    for lane in lanes(mask) {
        let beside = at.wrapping_add((lane * size_of::<M>()) as u64) as *const M;
        // SAFETY: by this function's contract.
        values[lane] = unsafe { beside.read_volatile() };
    }
    values
}

/// Stores 32 values beside each other, each at once.
///
/// # Safety
/// They can be stored, and the address is a multiple of their size, which is 1, 2, 4 or 8 bytes.
#[inline(always)]
pub(super) unsafe fn store_row<M: Copy>(at: u64, values: &[M; WARP]) {
    if !at.is_multiple_of(size_of::<__m128i>() as u64) {
        for lane in 0..WARP {
            // SAFETY: by this function's contract.
            unsafe { (at as *mut M).add(lane).write_volatile(values[lane]) };
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
