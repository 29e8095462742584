//! The aperture (BAR 2): guest-physical addresses in which allocations appear.
//!
//! One [`Window`] of host addresses is reserved for the whole BAR. Memory slots stand over the
//! chunks of it that are used; allocations are placed and removed inside them, which disturbs no
//! neighbour. What is not placed is a *hole*.
//!
//! A guest that touches a hole under a standing slot, or writes a read-only placement, makes
//! `KVM_RUN` fail with EFAULT, on many kernels without saying where. [`Aperture::resolve`] then
//! takes the slots of this VM down, so that the same instruction becomes MMIO exits with address
//! and data, has them handled, and puts the slots up again. Meanwhile legal accesses of other vCPUs
//! are exits too, and are carried out through the window; a locked read-modify-write is then not
//! atomic to other vCPUs, which a guest that makes stray accesses has to bear.
//!
//! Memory of a device is not in the window: it is where its driver mapped it, with a memory slot of
//! its own (`docs/decisions/0006-device-memory-slots.md`).
//!
//! Lock order: the state's lock is taken for one operation and never while a vCPU runs, so it is a
//! leaf: its holder calls nothing but the hypervisor seam and `mmap`. The drivers of device memory,
//! which may not come back, map it before the lock is taken, and unmap it after it is released.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use causeway_mediator::host::PlaceError;
use causeway_memory::{
    Backing, DeviceMapping, LARGE_PAGE_BYTES, MemoryError, PAGE_BYTES, RangeAllocator,
    SharedMemory, Window,
};
use causeway_protocol::Access;
use parking_lot::{Condvar, Mutex};

use crate::hypervisor::MemorySlots;

mod access;
mod chunk_slots;
mod device_slots;
mod fault;
mod lease;
mod prefault;
mod usage;

pub use chunk_slots::{CHUNK_BYTES, chunk_bytes};
pub use device_slots::DEVICE_PLACEMENTS_MAX;
pub use fault::{Apertures, EmulationRetry, FaultError, FaultOutcome, Processor};
pub use lease::{Lease, LeasedMemory};
pub use usage::{ApertureUse, Usage};

use chunk_slots::ChunkSlots;
use device_slots::mapped;

/// Maximum number of allocations that can be placed in one aperture at a time.
/// [`Aperture::shared_among`] can lower it.
pub const PLACEMENTS_MAX: usize = 8192;
/// Most placements of all guests of a process. Each is a piece of the window's address range, and
/// so is the hole behind it; a process may have 65,530 pieces (`vm.max_map_count`), and needs some
/// for other things.
const PLACEMENTS_OF_ALL_MAX: usize = 24_576;

/// A mapping in the aperture.
struct Placement {
    backing: Backing,
    /// First byte in the backing.
    from: u64,
    bytes: u64,
    access: Access,
    /// For users of the memory on the guest's behalf, with the guest's rights.
    lease: Lease,
    /// Its range of the aperture: larger than `bytes` if the alignment of 2 MiB pages needs it.
    taken: Range<u64>,
}

impl Placement {
    /// Returns whether this is `bytes` bytes of `backing` from byte `from`.
    fn shows(&self, backing: &Backing, from: u64, bytes: u64) -> bool {
        let is_same = match (&self.backing, backing) {
            (Backing::Device(memory), Backing::Device(other)) => Arc::ptr_eq(memory, other),
            (Backing::Host { memory, .. }, Backing::Host { memory: other, .. }) => {
                Arc::ptr_eq(memory, other)
            }
            _ => false,
        };
        is_same && (self.from, self.bytes) == (from, bytes)
    }
}

struct State {
    extents: RangeAllocator,
    /// Free parts of the chunks that are for memory of devices.
    device_extents: RangeAllocator,
    placements: BTreeMap<u64, Placement>,
    slots: ChunkSlots,
    /// Number of suspensions so far.
    epoch: u64,
    /// Placements whose pages the hypervisor could map ahead.
    fresh: Vec<Range<u64>>,
}

/// The aperture (BAR 2) of one VM: the guest-physical window in which the guest's allocations
/// appear.
pub struct Aperture {
    window: Arc<Window>,
    state: Mutex<State>,
    resumed: Condvar,
    prefault: prefault::Prefault,
    placements_max: usize,
    usage: Usage,
}

debug_by_name!(Aperture);

impl Aperture {
    /// Returns an empty aperture of `bytes` bytes, a power of two of at least 2 MiB. `slots` is the
    /// hypervisor interface through which the aperture adds and deletes its memory slots. The
    /// aperture has no guest-physical address until [`Self::relocate`] gives it one.
    ///
    /// # Errors
    /// [`MemoryError::Map`] if this process has no free address range of `bytes` bytes.
    pub fn new(bytes: u64, slots: Arc<dyn MemorySlots>) -> Result<Self, MemoryError> {
        let window = Arc::new(Window::reserve(bytes)?);
        Ok(Self {
            state: Mutex::new(State {
                extents: RangeAllocator::new(0..bytes),
                device_extents: RangeAllocator::default(),
                placements: BTreeMap::new(),
                slots: ChunkSlots::new(slots, Arc::clone(&window)),
                epoch: 0,
                fresh: Vec::new(),
            }),
            window,
            resumed: Condvar::new(),
            prefault: prefault::Prefault::default(),
            placements_max: PLACEMENTS_MAX,
            usage: Usage::default(),
        })
    }

    /// Limits how many allocations can be placed in this aperture at a time, because the address
    /// range of one process can hold only 24,576 of them. `guests` is the number of VMs in this
    /// process: each gets an equal share, but at most [`PLACEMENTS_MAX`].
    #[must_use]
    pub fn shared_among(mut self, guests: u32) -> Self {
        let part = PLACEMENTS_OF_ALL_MAX / guests.max(1) as usize;
        self.placements_max = PLACEMENTS_MAX.min(part);
        self
    }

    /// Returns the size of the aperture in bytes.
    pub fn bytes(&self) -> u64 {
        self.window.bytes()
    }

    /// Returns the guest-physical address of the aperture; `None` while it has none, as when the
    /// guest has disabled BAR 2.
    pub fn base(&self) -> Option<u64> {
        self.state.lock().slots.base()
    }

    /// Moves the aperture to guest-physical address `base`. With `None`, the aperture has no
    /// address, and the guest cannot reach it. Each placed allocation keeps its offset in the
    /// aperture.
    ///
    /// # Errors
    /// The hypervisor's error if it refuses a memory slot; the aperture then has no address.
    pub fn relocate(&self, base: Option<u64>) -> std::io::Result<()> {
        self.state.lock().slots.relocate(base)
    }

    /// Makes the `bytes` bytes of `backing` that begin at offset `from` appear in the aperture.
    /// Gives the guest the rights `access` to them, and returns their offset in the aperture. See
    /// [`causeway_mediator::host::Host::place`].
    ///
    /// # Errors
    /// [`PlaceError::Full`] if the aperture has no room or contains the maximum number of
    /// allocations, `Map` if the range does not lie in `backing` or cannot be mapped, `Slot` if the
    /// hypervisor refuses a memory slot. On an error, nothing has changed.
    pub fn place(
        &self,
        backing: &Backing,
        from: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, PlaceError> {
        check_pages(from, bytes, backing.bytes())?;
        // Before the lock is taken, as `Self::change` says.
        let mut mapping = mapped(backing, from, bytes, access)?;
        self.change(|state| {
            if state.placements.len() >= self.placements_max {
                return Err(PlaceError::Full { bytes });
            }
            let (taken, offset) = state.room(backing, from, bytes)?;
            let placement = Placement {
                backing: backing.clone(),
                from,
                bytes,
                access,
                lease: Lease::default(),
                taken: taken.clone(),
            };
            if let Err(e) = self.show(&mut state.slots, offset, &placement, &mut mapping) {
                state.give_back(&placement);
                return Err(e);
            }
            if access != Access::None && backing.host().is_some() {
                self.prefault.want(&mut state.fresh, offset..offset + bytes);
            }
            state.placements.insert(offset, placement);
            self.usage.placed(bytes);
            Ok(offset)
        })
    }

    /// Calls `change` with the state locked, and returns its result. Has drivers unmap what no slot
    /// shows any more when the lock is free again: a driver may not come back.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        let hidden = state.slots.take_hidden();
        drop(state);
        drop(hidden);
        changed
    }

    /// Gives the guest the rights `access` to the memory that is placed at `offset`. Ends the
    /// [`Lease`]s by which host threads use that memory. See
    /// [`causeway_mediator::host::Host::set_access`].
    ///
    /// # Errors
    /// [`PlaceError::Absent`] if nothing is placed at `offset`, `Map` if the memory cannot be
    /// mapped, `Slot` if the hypervisor refuses a memory slot. After `Map` or `Slot` the guest
    /// cannot reach the memory, which can still be removed.
    pub fn set_access(&self, offset: u64, access: Access) -> Result<(), PlaceError> {
        let absent = PlaceError::Absent { offset };
        let Some((backing, from, bytes)) = self.placed(offset) else {
            return Err(absent);
        };
        let (mut mapping, failure) = match mapped(&backing, from, bytes, access) {
            Ok(mapping) => (mapping, None),
            Err(error) => (None, Some(error)),
        };
        self.change(|state| {
            let State {
                placements, slots, ..
            } = state;
            // Something else may be there by now.
            let placement = placements.get_mut(&offset);
            let shows = |known: &&mut Placement| known.shows(&backing, from, bytes);
            let placement = placement.filter(shows).ok_or(absent)?;
            std::mem::take(&mut placement.lease).end();
            placement.access = access;
            let shown = match failure {
                None => self.show(slots, offset, placement, &mut mapping),
                Some(error) => self.hide(slots, offset, placement).and(Err(error)),
            };
            shown.inspect_err(|_| placement.access = Access::None)
        })
    }

    /// Returns what is placed at `offset`: the memory, the first byte in it, and the size.
    fn placed(&self, offset: u64) -> Option<(Backing, u64, u64)> {
        let state = self.state.lock();
        let placement = state.placements.get(&offset)?;
        Some((placement.backing.clone(), placement.from, placement.bytes))
    }

    /// Removes the memory that is placed at `offset`, so that the guest cannot reach it. Ends the
    /// [`Lease`]s by which host threads use that memory. See
    /// [`causeway_mediator::host::Host::remove`].
    ///
    /// # Errors
    /// [`PlaceError::Absent`] if nothing is placed at `offset`, `Map` if host memory cannot be
    /// unmapped, `Slot` if the hypervisor does not delete a memory slot. After `Map` or `Slot` the
    /// guest still sees the memory.
    pub fn remove(&self, offset: u64) -> Result<(), PlaceError> {
        let removed = self.change(|state| {
            let State {
                placements, slots, ..
            } = state;
            let placement = placements
                .get(&offset)
                .ok_or(PlaceError::Absent { offset })?;
            placement.lease.end();
            self.hide(slots, offset, placement)?;
            let removed = state.placements.remove(&offset);
            if let Some(placement) = &removed {
                state.give_back(placement);
                self.usage.removed(placement.bytes);
            }
            state.fresh.retain(|range| range.start != offset);
            Ok(removed)
        });
        removed.map(drop)
    }

    /// Returns the memory behind `[offset, offset + bytes)` of the aperture, with the lease by
    /// which a host thread may use it. Returns `None` if no single placed allocation contains the
    /// whole range, or if that allocation is memory of a device and not of the host.
    pub fn object(&self, offset: u64, bytes: u64) -> Option<LeasedMemory> {
        let state = self.state.lock();
        let (start, placement) = state.find(offset, bytes)?;
        let (memory, base) = placement.backing.host()?;
        Some(LeasedMemory {
            memory: Arc::clone(memory),
            offset: base + placement.from + (offset - start),
            access: placement.access,
            lease: placement.lease.clone(),
        })
    }

    /// Returns how much of the aperture is used, without waiting for a lock.
    pub fn usage(&self) -> ApertureUse {
        self.usage.of(self.bytes())
    }

    /// Makes a placement visible to the guest with its access rights. On failure the guest sees a
    /// hole. `mapping` is that of a device's memory, which this takes.
    fn show(
        &self,
        slots: &mut ChunkSlots,
        offset: u64,
        placement: &Placement,
        mapping: &mut Option<Box<dyn DeviceMapping>>,
    ) -> Result<(), PlaceError> {
        match &placement.backing {
            Backing::Host {
                memory,
                offset: base,
            } => {
                // The slot comes first: it disturbs nobody, and an empty one is only a hole.
                slots
                    .cover(offset..offset + placement.bytes)
                    .map_err(|source| PlaceError::Slot { offset, source })?;
                self.show_object(offset, memory, base + placement.from, placement)
            }
            Backing::Device(_) => {
                slots.show_device(offset, mapping, placement.bytes, placement.access)
            }
        }
    }

    /// Makes the guest see a hole in place of a placement.
    fn hide(
        &self,
        slots: &mut ChunkSlots,
        offset: u64,
        placement: &Placement,
    ) -> Result<(), PlaceError> {
        let bytes = placement.bytes;
        match placement.backing {
            // KVM drops its mappings of the range (MMU notifier) before the call returns.
            Backing::Host { .. } => self
                .window
                .clear(offset, bytes)
                .map_err(|source| PlaceError::Map { bytes, source }),
            Backing::Device(_) => slots.hide_device(offset),
        }
    }

    /// Makes the window show a part of an object, from `start` of it, with pages behind it.
    fn show_object(
        &self,
        offset: u64,
        memory: &SharedMemory,
        start: u64,
        placement: &Placement,
    ) -> Result<(), PlaceError> {
        let (window, bytes, access) = (&self.window, placement.bytes, placement.access);
        let fail = |source| PlaceError::Map { bytes, source };
        if access == Access::None {
            return window.clear(offset, bytes).map_err(fail);
        }
        window
            .place(offset, memory, start, bytes, access)
            .and_then(|()| window.populate(offset, bytes, access))
            .map_err(|e| {
                if let Err(left) = window.clear(offset, bytes) {
                    log::error!(
                        "memory could be mapped only in part at aperture offset {offset:#x}, and \
                         this part cannot be removed: {left}"
                    );
                }
                fail(e)
            })
    }
}

impl State {
    /// Takes room for a placement. Returns the range taken, and the offset in that range at which 2
    /// MiB pages stay 2 MiB pages.
    fn room(
        &mut self,
        backing: &Backing,
        from: u64,
        bytes: u64,
    ) -> Result<(Range<u64>, u64), PlaceError> {
        let full = PlaceError::Full { bytes };
        let Some((_, base)) = backing.host() else {
            let start = self.device_room(bytes).ok_or(full)?;
            return Ok((start..start + bytes, start));
        };
        let phase = if bytes >= LARGE_PAGE_BYTES {
            (base + from) % LARGE_PAGE_BYTES
        } else {
            0
        };
        let total = bytes + phase;
        let start = self.extents.take_by_size(total).ok_or(full)?;
        Ok((start..start + total, start + phase))
    }

    /// Returns room in a chunk that no slot of the window covers, now or later.
    fn device_room(&mut self, bytes: u64) -> Option<u64> {
        if !self.slots.devices().has_room() {
            return None;
        }
        if let Some(start) = self.device_extents.take_by_size(bytes) {
            return Some(start);
        }
        let chunk = self.slots.chunk_bytes();
        if bytes > chunk {
            return None;
        }
        let slots = &self.slots;
        let start = self
            .extents
            .take_highest(chunk, chunk, |start| slots.is_unused(start))?;
        self.device_extents.give_back(start, chunk);
        self.device_extents.take_by_size(bytes)
    }

    /// Gives back the room of a placement.
    fn give_back(&mut self, placement: &Placement) {
        let Range { start, end } = placement.taken;
        let extents = match placement.backing {
            Backing::Host { .. } => &mut self.extents,
            Backing::Device(_) => &mut self.device_extents,
        };
        extents.give_back(start, end - start);
    }

    /// Returns the placement that has all of `[offset, offset + bytes)`, and its offset.
    fn find(&self, offset: u64, bytes: u64) -> Option<(u64, &Placement)> {
        let (&start, placement) = self.placements.range(..=offset).next_back()?;
        let within = offset - start;
        (within.checked_add(bytes)? <= placement.bytes).then_some((start, placement))
    }
}

/// Refuses a range that is empty, has parts of pages, or is not within an object of `size` bytes.
fn check_pages(offset: u64, bytes: u64, size: u64) -> Result<(), PlaceError> {
    let end = offset.checked_add(bytes).filter(|end| *end <= size);
    if end.is_some() && bytes != 0 && (offset | bytes).is_multiple_of(PAGE_BYTES) {
        return Ok(());
    }
    Err(PlaceError::Map {
        bytes,
        source: MemoryError::Range {
            offset,
            bytes,
            size,
        },
    })
}

#[cfg(test)]
mod tests;
