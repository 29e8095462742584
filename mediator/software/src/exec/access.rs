//! From the addresses of 32 lanes to host addresses, or to a fault.
//!
//! Usually all lanes are in one mapping, or in shared memory: that is one check for the whole warp. What does
//! not pass it is looked at lane by lane, and faults are found there.

use causeway_protocol::Access as Rights;

use super::Context;
use super::context::{AccessKind, Trouble};
use crate::address;
use crate::isa::Isa;
use crate::program::{Op, Slot, WARP};

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

/// Host addresses of a warp's access. Inactive lanes repeat the address of an active one.
pub(super) struct Reach {
    /// One per lane.
    pub(super) at: [u64; WARP],
    /// All lanes access the same place.
    pub(super) uniform: bool,
}

impl Reach {
    /// Addresses of the active lanes of an access; `None` is a fault, described in the context.
    ///
    /// # Safety
    /// As `Exec`.
    #[inline(always)]
    pub(super) unsafe fn of(
        context: &mut Context<'_>,
        op: &Op,
        bytes: usize,
        kind: AccessKind,
    ) -> Option<Self> {
        let mut reach = Self {
            at: [0; WARP],
            uniform: false,
        };
        let access = Access {
            bytes: bytes as u64,
            kind,
        };
        let reacher = context.reacher;
        // SAFETY: by this function's contract; the reacher was chosen for this host.
        unsafe { reacher(context, op, access, &mut reach) }.then_some(reach)
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

/// [`reach`], compiled for the host. One function for all accesses keeps what is compiled small.
pub(super) type Reacher = unsafe fn(&mut Context<'_>, &Op, Access, &mut Reach) -> bool;

/// The [`Reacher`] for an instruction set.
pub(super) fn reacher(isa: Isa) -> Reacher {
    match isa {
        Isa::Baseline => reach,
        Isa::Avx2 => reach_avx2,
    }
}

/// # Safety
/// As [`reach`]; the host has these features.
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn reach_avx2(context: &mut Context<'_>, op: &Op, access: Access, into: &mut Reach) -> bool {
    // SAFETY: by this function's contract.
    unsafe { reach(context, op, access, into) }
}

/// Host addresses of what the active lanes access: address in `Op::a`, offset in `Op::imm`, state space in
/// `Op::c`, alignment minus one in `Op::d`. False is a fault, described in the context.
///
/// # Safety
/// As `Exec`: the operation is one of the program, and its frame is bound.
#[inline(always)]
unsafe fn reach(context: &mut Context<'_>, op: &Op, access: Access, into: &mut Reach) -> bool {
    let space = (op.c.0 & 7) as u8;
    let mut at = addresses(context, op);
    if context.mask != u32::MAX {
        let first = at[(context.mask.trailing_zeros() & 31) as usize];
        for (lane, address) in at.iter_mut().enumerate() {
            let active = context.mask & (1 << lane) != 0;
            *address = if active { *address } else { first };
        }
    }
    let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
    for address in at {
        low = low.min(address);
        high = high.max(address);
        bits |= address;
    }
    let found = if bits & u64::from(op.d.0) == 0 {
        window(context, space, (low, high), access)
    } else {
        None
    };
    let Some((bias, stride)) = found else {
        return lane_by_lane(context, op, at, access, into);
    };
    for (lane, address) in at.iter().enumerate() {
        into.at[lane] = address.wrapping_add(bias.wrapping_add(lane as u64 * stride));
    }
    into.uniform = low == high && stride == 0;
    true
}

#[inline(always)]
fn addresses(context: &Context<'_>, op: &Op) -> [u64; WARP] {
    let mut at;
    if op.c.0 & WORD_ADDRESS != 0 {
        let words = context.words(op.a);
        let offset = op.imm as u32;
        at = [0; WARP];
        for (address, word) in at.iter_mut().zip(words) {
            *address = u64::from(word.wrapping_add(offset));
        }
    } else {
        // SAFETY: lowering gives the address operand a double register in the bound frame.
        at = unsafe { *context.slot::<[u64; WARP]>(op.a) };
        for address in &mut at {
            *address = address.wrapping_add(op.imm);
        }
    }
    at
}

/// What turns addresses `low` to `high` into host addresses, if one thing does: a bias, and a stride by lane.
#[inline(always)]
fn window(
    context: &mut Context<'_>,
    space: u8,
    (low, high): (u64, u64),
    access: Access,
) -> Option<(u64, u64)> {
    let bytes = access.bytes;
    match space {
        space::GLOBAL => mapped(context, (low, high), access).map(|bias| (bias, 0)),
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
                return mapped(context, (low, high), access).map(|bias| (bias, 0));
            }
            let start = address::SHARED.start;
            let fits =
                low >= start && high.checked_add(bytes)? - start <= u64::from(context.shared.bytes);
            fits.then_some(((context.shared.base as u64).wrapping_sub(start), 0))
        }
    }
}

#[inline(always)]
fn mapped(context: &mut Context<'_>, (low, high): (u64, u64), access: Access) -> Option<u64> {
    let holds = |entry: &crate::table::Entry| low >= entry.start && low < entry.end;
    let mut entry = context.entries.get(context.cached)?;
    if !holds(entry) {
        context.cached = context.launch.table.find(low)?;
        entry = &context.entries[context.cached];
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
fn lane_by_lane(
    context: &mut Context<'_>,
    op: &Op,
    addresses: [u64; WARP],
    access: Access,
    into: &mut Reach,
) -> bool {
    into.uniform = false;
    for lane in lanes(context.mask) {
        let address = addresses[lane];
        let host = if address & u64::from(op.d.0) != 0 {
            Err("not aligned")
        } else {
            host_address(context, op, (lane, address), access)
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
    op: &Op,
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
    match (op.c.0 & 7) as u8 {
        space::SHARED => shared(0),
        space::LOCAL => local(0),
        space::PARAMETER => parameter(0),
        space::GENERIC if address::SHARED.contains(&address) => shared(address::SHARED.start),
        space::GENERIC if address::LOCAL.contains(&address) => local(address::LOCAL.start),
        space::GENERIC if address::PARAMETERS.contains(&address) => {
            parameter(address::PARAMETERS.start)
        }
        _ => global(context, address, bytes, kind),
    }
}

fn global(
    context: &Context<'_>,
    address: u64,
    bytes: u64,
    kind: AccessKind,
) -> Result<u64, &'static str> {
    let table = &context.launch.table;
    if table.find(address).is_none() {
        return Err("not mapped");
    }
    match table.host(address, rights(kind)) {
        Some((host, left)) if left >= bytes => Ok(host),
        Some(_) => Err("beyond the end of the mapping"),
        None => Err("against the rights of the mapping"),
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
