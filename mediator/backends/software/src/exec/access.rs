//! From the addresses of 32 lanes to host addresses, or to a fault.
//!
//! Loads and stores try [`super::coalesced`] first. Otherwise all lanes are usually in one mapping,
//! or in shared memory: that is one check for the whole warp. What does not pass it is looked at
//! lane by lane, and faults are found there.
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked at once"
)]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_add_epi32, _mm_loadu_si128, _mm256_add_epi64, _mm256_blendv_epi8,
    _mm256_castsi256_si128, _mm256_cmpgt_epi64, _mm256_cvtepu32_epi64, _mm256_loadu_si256,
    _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_storeu_si256,
};

use causeway_cpu_queue::Entry;
use causeway_protocol::Access as Rights;

use super::Context;
use super::context::SITES;
use super::fault::{AccessKind, NOT_ALIGNED, Trouble};
use crate::address;
use crate::program::Op;
use crate::registers::{Slot, WARP};

/// State spaces: the low bits of `Op::c` of a memory access.
pub(crate) mod space {
    /// `.global`, `.const`
    pub(crate) const GLOBAL: u8 = 0;
    /// `.shared`
    pub(crate) const SHARED: u8 = 1;
    /// `.local`
    pub(crate) const LOCAL: u8 = 2;
    /// `.param` of a kernel
    pub(crate) const PARAMETER: u8 = 3;
    /// No state space: any of the above.
    pub(crate) const GENERIC: u8 = 4;
}

/// Bit of `Op::c`: the address register is a word, not a double.
pub(crate) const WORD_ADDRESS: u32 = 8;

/// `Op::c` of a memory access.
pub(crate) const fn address_kind(space: u8, word: bool) -> Slot {
    Slot(space as u32 | if word { WORD_ADDRESS } else { 0 })
}

/// Host addresses of a warp's access. Inactive lanes repeat the address of an active one; in local
/// memory, they have it in their own.
pub(super) struct Reach {
    /// One per lane, to which `bias` is added.
    at: [u64; WARP],
    bias: u64,
    /// All lanes access the same place.
    pub(super) uniform: bool,
}

impl Reach {
    /// Addresses of the active lanes of an access; `None` is a fault, described in the context.
    ///
    /// # Safety
    /// As `Exec`; and the host has the features of [`crate::isa::Isa::Avx2`] if `AVX2` is set.
    #[inline(always)]
    pub(super) unsafe fn of<const AVX2: bool>(
        context: &mut Context<'_>,
        op: &Op,
        bytes: usize,
        kind: AccessKind,
    ) -> Option<Self> {
        let mut reach = Self {
            at: [0; WARP],
            bias: 0,
            uniform: false,
        };
        let access = Access {
            bytes: bytes as u64,
            kind,
        };
        // Two functions for all accesses keep what is compiled small.
        // SAFETY: by this function's contract.
        let found = unsafe {
            if AVX2 {
                reach_avx2(context, op, access, &mut reach)
            } else {
                reach_baseline(context, op, access, &mut reach)
            }
        };
        found.then_some(reach)
    }

    /// Returns the host address of a lane's access.
    #[inline(always)]
    pub(super) fn host(&self, lane: usize) -> u64 {
        self.at[lane].wrapping_add(self.bias)
    }
}

/// What is accessed at each address.
#[derive(Clone, Copy)]
pub(super) struct Access {
    /// Bytes.
    pub(super) bytes: u64,
    /// Load, store or atomic operation.
    pub(super) kind: AccessKind,
}

/// [`reach_baseline`] with vector instructions.
///
/// # Safety
/// As [`reach_baseline`]; the host has these features.
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn reach_avx2(context: &mut Context<'_>, op: &Op, access: Access, into: &mut Reach) -> bool {
    let extent = match context.mask {
        // SAFETY: by this function's contract.
        u32::MAX => unsafe { walk_avx2(context, op, &mut into.at) },
        _ => {
            addresses(context, op, &mut into.at);
            extent_avx2(&into.at)
        }
    };
    translate(context, op, access, into, extent)
}

/// Host addresses of what the active lanes access: address in `Op::a`, offset in `Op::imm`, state
/// space in `Op::c`, alignment minus one in `Op::d`. False is a fault, described in the context.
///
/// # Safety
/// As `Exec`: the operation is one of the program, and its frame is bound.
#[inline(never)]
unsafe fn reach_baseline(
    context: &mut Context<'_>,
    op: &Op,
    access: Access,
    into: &mut Reach,
) -> bool {
    addresses(context, op, &mut into.at);
    let extent = extent(&into.at);
    translate(context, op, access, into, extent)
}

/// Addresses as the kernel gives them. Inactive lanes repeat the address of the first active one.
#[inline(always)]
fn addresses(context: &Context<'_>, op: &Op, at: &mut [u64; WARP]) {
    if op.c.0 & WORD_ADDRESS != 0 {
        let words = context.slot::<u32>(op.a);
        let offset = op.imm as u32;
        for lane in 0..WARP {
            // SAFETY: lowering gives the address operand a word register in the bound frame.
            at[lane] = u64::from(unsafe { *words.add(lane) }.wrapping_add(offset));
        }
    } else {
        let doubles = context.slot::<u64>(op.a);
        for lane in 0..WARP {
            // SAFETY: lowering gives the address operand a double register in the bound frame.
            at[lane] = unsafe { *doubles.add(lane) }.wrapping_add(op.imm);
        }
    }
    if context.mask != u32::MAX {
        let first = at[(context.mask.trailing_zeros() & 31) as usize];
        for lane in 0..WARP {
            let active = context.mask & (1 << lane) != 0;
            at[lane] = if active { at[lane] } else { first };
        }
    }
}

/// Of all addresses: the lowest and the highest (as signed numbers, which vector instructions can
/// compare), and all bits that are set in any.
#[derive(Clone, Copy)]
struct Extent {
    low: i64,
    high: i64,
    bits: u64,
}

fn extent(at: &[u64; WARP]) -> Extent {
    let mut extent = Extent {
        low: i64::MAX,
        high: i64::MIN,
        bits: 0,
    };
    for address in at {
        extent.low = extent.low.min(*address as i64);
        extent.high = extent.high.max(*address as i64);
        extent.bits |= address;
    }
    extent
}

/// Running extents, in vectors of four lanes.
#[derive(Clone, Copy)]
struct Extents {
    low: __m256i,
    high: __m256i,
    bits: __m256i,
}

impl Extents {
    #[target_feature(enable = "avx2")]
    fn none() -> Self {
        Self {
            low: _mm256_set1_epi64x(i64::MAX),
            high: _mm256_set1_epi64x(i64::MIN),
            bits: _mm256_set1_epi64x(0),
        }
    }

    #[target_feature(enable = "avx2")]
    fn add(&mut self, next: __m256i) {
        let Self { low, high, bits } = *self;
        self.low = _mm256_blendv_epi8(low, next, _mm256_cmpgt_epi64(low, next));
        self.high = _mm256_blendv_epi8(high, next, _mm256_cmpgt_epi64(next, high));
        self.bits = _mm256_or_si256(bits, next);
    }

    #[target_feature(enable = "avx2")]
    fn all(self) -> Extent {
        // SAFETY: both types are 32 bytes without invalid values.
        let (low, high, bits): ([i64; 4], [i64; 4], [u64; 4]) = unsafe {
            (
                std::mem::transmute::<__m256i, [i64; 4]>(self.low),
                std::mem::transmute::<__m256i, [i64; 4]>(self.high),
                std::mem::transmute::<__m256i, [u64; 4]>(self.bits),
            )
        };
        Extent {
            low: low[0].min(low[1]).min(low[2].min(low[3])),
            high: high[0].max(high[1]).max(high[2].max(high[3])),
            bits: bits[0] | bits[1] | bits[2] | bits[3],
        }
    }
}

/// [`extent`], four lanes at a time.
#[target_feature(enable = "avx2")]
fn extent_avx2(at: &[u64; WARP]) -> Extent {
    let lanes = at.as_ptr().cast::<__m256i>();
    // SAFETY: there are eight times four lanes; the loads are unaligned.
    let load = |part: usize| unsafe { _mm256_loadu_si256(lanes.add(part)) };
    let mut extents = Extents::none();
    for part in 0..WARP / 4 {
        extents.add(load(part));
    }
    extents.all()
}

/// [`addresses`] and [`extent`] of a whole warp, four lanes at a time.
///
/// # Safety
/// As [`reach_baseline`]; all lanes are active.
#[target_feature(enable = "avx2")]
unsafe fn walk_avx2(context: &Context<'_>, op: &Op, at: &mut [u64; WARP]) -> Extent {
    let is_word = op.c.0 & WORD_ADDRESS != 0;
    let (words, doubles) = (context.slot::<__m128i>(op.a), context.slot::<__m256i>(op.a));
    let offset = match is_word {
        true => _mm256_set1_epi32(op.imm as i32),
        false => _mm256_set1_epi64x(op.imm as i64),
    };
    let to = at.as_mut_ptr().cast::<__m256i>();
    let mut extents = Extents::none();
    for part in 0..WARP / 4 {
        // SAFETY: lowering gives the address operand a register of this class in the bound frame,
        // which has eight times four lanes, as `at` has.
        let next = unsafe {
            let next = match is_word {
                true => _mm256_cvtepu32_epi64(_mm_add_epi32(
                    _mm_loadu_si128(words.add(part)),
                    _mm256_castsi256_si128(offset),
                )),
                false => _mm256_add_epi64(_mm256_loadu_si256(doubles.add(part)), offset),
            };
            _mm256_storeu_si256(to.add(part), next);
            next
        };
        extents.add(next);
    }
    extents.all()
}

/// Turns the addresses into host addresses.
#[inline(always)]
fn translate(
    context: &mut Context<'_>,
    op: &Op,
    access: Access,
    into: &mut Reach,
    extent: Extent,
) -> bool {
    // Addresses with the top bit set are valid nowhere, and would be in the wrong order.
    let found = if extent.bits & (u64::from(op.d.0) | 1 << 63) == 0 {
        let ends = (extent.low as u64, extent.high as u64);
        window(context, op, ends, access)
    } else {
        None
    };
    let Some((bias, stride)) = found else {
        return lane_by_lane(context, op, access, into);
    };
    into.bias = bias;
    if stride != 0 {
        for lane in 0..WARP {
            into.at[lane] = into.at[lane].wrapping_add(lane as u64 * stride);
        }
    }
    into.uniform = extent.low == extent.high && stride == 0;
    true
}

/// What turns addresses `low` to `high` into host addresses, if one thing does: a bias, and a
/// stride by lane.
#[inline(always)]
pub(super) fn window(
    context: &mut Context<'_>,
    op: &Op,
    (low, high): (u64, u64),
    access: Access,
) -> Option<(u64, u64)> {
    let (space, site) = ((op.c.0 & 7) as u8, op.ordinal as usize % SITES);
    let bytes = access.bytes;
    match space {
        space::GLOBAL => mapped(context, site, (low, high), access).map(|bias| (bias, 0)),
        space::SHARED => {
            let fits = high.checked_add(bytes)? <= u64::from(context.shared.bytes);
            fits.then_some((context.shared.base as u64, 0))
        }
        space::LOCAL => {
            let size = u64::from(context.local.bytes);
            let fits = high.checked_add(bytes)? <= size;
            fits.then_some((context.local.base as u64, size))
        }
        space::PARAMETER => None,
        _ => {
            if address::is_global(high) {
                return mapped(context, site, (low, high), access).map(|bias| (bias, 0));
            }
            let start = address::SHARED.start;
            let fits =
                low >= start && high.checked_add(bytes)? - start <= u64::from(context.shared.bytes);
            fits.then_some(((context.shared.base as u64).wrapping_sub(start), 0))
        }
    }
}

#[inline(always)]
fn mapped(
    context: &mut Context<'_>,
    site: usize,
    (low, high): (u64, u64),
    access: Access,
) -> Option<u64> {
    let holds = |entry: &Entry| low >= entry.start && low < entry.end;
    let mut entry = context.entries.get(context.cached[site])?;
    if !holds(entry) {
        let found = context.table.find(low)?;
        context.cached[site] = found;
        entry = &context.entries[found];
    }
    let fits = high < entry.end && entry.end - high >= access.bytes;
    (fits && entry.allows(rights(access.kind))).then(|| entry.host.wrapping_sub(entry.start))
}

const fn rights(kind: AccessKind) -> Rights {
    match kind {
        AccessKind::Load => Rights::Read,
        AccessKind::Store | AccessKind::Atomic => Rights::ReadWrite,
    }
}

#[cold]
#[inline(never)]
fn lane_by_lane(context: &mut Context<'_>, op: &Op, access: Access, into: &mut Reach) -> bool {
    #[cfg(test)]
    tests::count_lane_by_lane();
    into.uniform = false;
    for lane in lanes(context.mask) {
        let address = into.at[lane];
        let host = if address & u64::from(op.d.0) != 0 {
            Err(NOT_ALIGNED)
        } else {
            host_address(context, (op.c.0 & 7) as u8, (lane, address), access)
        };
        match host {
            Ok(host) => into.at[lane] = host,
            Err(reason) => {
                context.trouble = Some(Trouble::Access {
                    lane: lane as u32,
                    address,
                    bytes: access.bytes,
                    kind: access.kind,
                    reason,
                });
                return false;
            }
        }
    }
    let first = into.at[(context.mask.trailing_zeros() & 31) as usize];
    for (lane, host) in into.at.iter_mut().enumerate() {
        if context.mask & (1 << lane) == 0 {
            *host = first;
        }
    }
    true
}

/// Host address of one lane's access.
fn host_address(
    context: &Context<'_>,
    space: u8,
    (lane, address): (usize, u64),
    access: Access,
) -> Result<u64, &'static str> {
    let (bytes, kind) = (access.bytes, access.kind);
    let within = |area: super::context::Area, start: u64, what: &'static str| {
        let offset = address.checked_sub(start).ok_or(what)?;
        let end = offset.checked_add(bytes).ok_or(what)?;
        (end <= u64::from(area.bytes))
            .then(|| (area.base as u64).wrapping_add(offset))
            .ok_or(what)
    };
    let shared = |start| within(context.shared, start, "outside the block's shared memory");
    let local = |start| {
        within(context.local, start, "outside the thread's local memory")
            .map(|at| at + lane as u64 * u64::from(context.local.bytes))
    };
    let parameter = |start| match kind {
        AccessKind::Load => within(context.parameters, start, "outside the kernel's parameters"),
        _ => Err("parameters of a kernel cannot be written"),
    };
    match space {
        space::SHARED => shared(0),
        space::LOCAL => local(0),
        space::PARAMETER => parameter(0),
        space::GENERIC if address::SHARED.contains(&address) => shared(address::SHARED.start),
        space::GENERIC if address::LOCAL.contains(&address) => local(address::LOCAL.start),
        space::GENERIC if address::PARAMETERS.contains(&address) => {
            parameter(address::PARAMETERS.start)
        }
        space::GLOBAL | space::GENERIC if address::GRID.contains(&address) => {
            let what = "outside the memory with which blocks wait for each other";
            within(context.workspace, address::GRID.start, what)
        }
        _ => global(context, address, bytes, kind),
    }
}

/// The address that a lane gives to an access.
pub(super) fn lane_address(context: &Context<'_>, op: &Op, lane: usize) -> u64 {
    if op.c.0 & WORD_ADDRESS != 0 {
        u64::from(context.word(op.a, lane as u32).wrapping_add(op.imm as u32))
    } else {
        // SAFETY: lowering gives the address operand a double register; there are 32 lanes.
        let address = unsafe { *context.slot::<u64>(op.a).add(lane) };
        address.wrapping_add(op.imm)
    }
}

/// Host address of the 16 bytes, aligned to 16, at the address of a lane.
pub(super) fn row_address(
    context: &Context<'_>,
    op: &Op,
    (lane, address): (usize, u64),
    kind: AccessKind,
) -> Result<u64, Trouble> {
    let access = Access { bytes: 16, kind };
    let host = match address % 16 {
        0 => host_address(context, (op.c.0 & 7) as u8, (lane, address), access),
        _ => Err("not aligned"),
    };
    host.map_err(|reason| Trouble::Access {
        lane: lane as u32,
        address,
        bytes: 16,
        kind,
        reason,
    })
}

/// Loads `N` bytes at a generic address of a lane, which need not be aligned.
pub(super) fn load_bytes<const N: usize>(
    context: &Context<'_>,
    lane: usize,
    address: u64,
) -> Result<[u8; N], Trouble> {
    let access = Access {
        bytes: N as u64,
        kind: AccessKind::Load,
    };
    match host_address(context, space::GENERIC, (lane, address), access) {
        Ok(host) => Ok(std::array::from_fn(|index| {
            // SAFETY: the N bytes at `host` may be read; others may write them meanwhile.
            unsafe { ((host + index as u64) as *const u8).read_volatile() }
        })),
        Err(reason) => Err(Trouble::Access {
            lane: lane as u32,
            address,
            bytes: N as u64,
            kind: AccessKind::Load,
            reason,
        }),
    }
}

/// Host address of `access` at an address of global memory, which a lane gives.
#[inline]
pub(super) fn global_address(
    context: &mut Context<'_>,
    (lane, address): (usize, u64),
    access: Access,
) -> Result<u64, Trouble> {
    // Instructions of textures and the like are rare: they share an entry.
    if let Some(bias) = mapped(context, 0, (address, address), access) {
        return Ok(address.wrapping_add(bias));
    }
    global(context, address, access.bytes, access.kind).map_err(|reason| Trouble::Access {
        lane: lane as u32,
        address,
        bytes: access.bytes,
        kind: access.kind,
        reason,
    })
}

fn global(
    context: &Context<'_>,
    address: u64,
    bytes: u64,
    kind: AccessKind,
) -> Result<u64, &'static str> {
    let table = context.table;
    if table.find(address).is_none() {
        return Err("not mapped");
    }
    match table.host(address, rights(kind)) {
        Some((host, left)) if left >= bytes => Ok(host),
        Some(_) => Err("beyond the end of the mapping"),
        None => Err("the mapping does not allow it"),
    }
}

/// Numbers of the lanes of a mask, in ascending order.
#[inline(always)]
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (lane < WARP as u32).then_some(lane as usize)
    })
}

#[cfg(test)]
#[path = "access_tests.rs"]
pub(super) mod tests;
