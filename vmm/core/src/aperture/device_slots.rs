//! Memory of devices in the aperture: each placement has a memory slot of its own, over the
//! addresses that the device's driver chose. `docs/decisions/0006-device-memory-slots.md` says why.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use causeway_mediator::host::PlaceError;
use causeway_memory::{Backing, DeviceMapping};
use causeway_protocol::Access;

use crate::hypervisor::{
    APERTURE_CHUNKS_MAX, APERTURE_SLOT_FIRST, MemorySlots, OwnedSlot, PASSTHROUGH_SLOT_FIRST, Slot,
};

/// Maximum number of ranges of device memory that one aperture shows at a time; each takes a memory
/// slot. The number is small enough that these slots, those of guest RAM and those of the rest of
/// the aperture fit into the 509 slots that Linux before 5.12 offers a VM.
pub const DEVICE_PLACEMENTS_MAX: u32 = 128;
/// Number of the first slot of device memory.
const DEVICE_SLOT_FIRST: u32 = APERTURE_SLOT_FIRST + APERTURE_CHUNKS_MAX;
const _: () = assert!(DEVICE_SLOT_FIRST + DEVICE_PLACEMENTS_MAX <= PASSTHROUGH_SLOT_FIRST);

/// The memory slots through which an aperture shows memory of devices: one slot for each range of
/// device memory. A range is identified by its offset in the aperture.
pub struct DeviceSlots {
    slots: Arc<dyn MemorySlots>,
    shown: BTreeMap<u64, OwnedSlot<Box<dyn DeviceMapping>>>,
    hidden: Hidden,
}

/// Mappings of device memory that no guest sees any more, with their slots, which are deleted.
pub type Hidden = Vec<OwnedSlot<Box<dyn DeviceMapping>>>;

impl DeviceSlots {
    /// Returns an empty set. `slots` is the hypervisor interface through which the set adds and
    /// deletes its memory slots.
    pub fn new(slots: Arc<dyn MemorySlots>) -> Self {
        Self {
            slots,
            shown: BTreeMap::new(),
            hidden: Vec::new(),
        }
    }

    /// Returns whether the set has fewer than [`DEVICE_PLACEMENTS_MAX`] ranges, so that another
    /// range of device memory can get a slot.
    pub fn has_room(&self) -> bool {
        self.shown.len() < DEVICE_PLACEMENTS_MAX as usize
    }

    /// Returns the address in this process of one byte of the device memory that begins at offset
    /// `start` of the aperture. `within` is the byte's offset from the start of that memory.
    /// Returns `None` if no device memory begins at `start`, or it ends before the byte.
    pub fn address(&self, start: u64, within: u64) -> Option<*mut u8> {
        let shown = self.shown.get(&start)?;
        let first = shown.memory()?.as_ptr().as_ptr();
        (within < shown.slot().bytes).then(|| first.wrapping_add(within as usize))
    }

    /// Returns the mappings that have been removed since the last call. The driver unmaps them when
    /// they are dropped, and may not come back: the caller holds no lock then.
    pub fn take_hidden(&mut self) -> Hidden {
        std::mem::take(&mut self.hidden)
    }

    /// Takes `mapping`, if there is one, and makes its first `bytes` bytes appear at `offset` of the
    /// aperture, read-only for the guest if `read_only` is set. `base` is the guest-physical address of the aperture. If
    /// `base` is `None`, the memory appears when [`Self::put_up`] is called next.
    ///
    /// # Errors
    /// `ENOSPC` if no slot is left, or the hypervisor's error if it refuses the slot. The guest
    /// then sees nothing of `mapping`.
    #[allow(unsafe_code)] // Gives the guest memory.
    pub fn show(
        &mut self,
        offset: u64,
        mapping: &mut Option<Box<dyn DeviceMapping>>,
        bytes: u64,
        read_only: bool,
        base: Option<u64>,
    ) -> io::Result<()> {
        let taken = |number| {
            self.shown
                .values()
                .any(|shown| shown.slot().number == number)
        };
        let mut numbers = DEVICE_SLOT_FIRST..DEVICE_SLOT_FIRST + DEVICE_PLACEMENTS_MAX;
        let Some(number) = numbers.find(|number| !taken(*number)) else {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        };
        let Some(mapping) = mapping.take() else {
            return Ok(());
        };
        let slot = Slot {
            number,
            gpa: 0,
            host: mapping.as_ptr().as_ptr() as u64,
            bytes,
            read_only,
        };
        // SAFETY: the mapping keeps its addresses until it is dropped. By its contract nobody holds
        // references to its content.
        let mut shown = unsafe { OwnedSlot::new(&self.slots, slot, mapping) };
        let added = base.map_or(Ok(()), |base| shown.add(base + offset));
        match added {
            Ok(()) => drop(self.shown.insert(offset, shown)),
            Err(_) => self.hidden.push(shown),
        }
        added
    }

    /// Removes the device memory that [`Self::show`] has made appear at `offset`. Does nothing if
    /// there is none. When this returns, the guest cannot reach the memory.
    ///
    /// # Errors
    /// The hypervisor's error if it does not delete the slot; the guest then still sees the memory.
    pub fn hide(&mut self, offset: u64) -> io::Result<()> {
        self.shown
            .get_mut(&offset)
            .map_or(Ok(()), OwnedSlot::delete)?;
        // Only now may the driver unmap: then its addresses are free for other memory.
        self.hidden.extend(self.shown.remove(&offset));
        Ok(())
    }

    /// Adds the slots of the set that do not exist in the hypervisor. `base` is the guest-physical
    /// address of the aperture.
    ///
    /// # Errors
    /// The hypervisor's error if it refuses a slot.
    pub fn put_up(&mut self, base: u64) -> io::Result<()> {
        let mut all = self.shown.iter_mut();
        all.try_for_each(|(offset, shown)| shown.add(base + offset))
    }

    /// Deletes the slots of the set from the hypervisor, so that the guest sees no device memory
    /// until [`Self::put_up`] adds them again.
    ///
    /// # Errors
    /// The hypervisor's error if it does not delete a slot; some slots then still exist.
    pub fn take_down(&mut self) -> io::Result<()> {
        self.shown.values_mut().try_for_each(OwnedSlot::delete)
    }
}

/// Has the driver of a device map memory that the guest may access.
pub fn mapped(
    backing: &Backing,
    from: u64,
    bytes: u64,
    access: Access,
) -> Result<Option<Box<dyn DeviceMapping>>, PlaceError> {
    match backing {
        Backing::Device(memory) if access != Access::None => {
            let mapping = memory.map(from, bytes);
            let mapping = mapping.map_err(|source| PlaceError::Map { bytes, source })?;
            Ok(Some(mapping))
        }
        Backing::Device(_) | Backing::Host { .. } => Ok(None),
    }
}

#[cfg(test)]
mod tests;
