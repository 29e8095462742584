//! Memory of devices in the aperture: each placement has a memory slot of its own, over the
//! addresses that the device's driver chose. `docs/decisions/0006-device-memory-slots.md` says why.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use causeway_memory::DeviceMapping;

use crate::hypervisor::{
    APERTURE_CHUNKS_MAX, APERTURE_SLOT_FIRST, MemorySlots, OwnedSlot, PASSTHROUGH_SLOT_FIRST, Slot,
};

/// Most pieces of device memory that one aperture may show at a time. Their memory slots, those of
/// guest RAM and those of the aperture's chunks are together fewer than the 509 that Linux before
/// 5.12 has.
pub const DEVICE_PLACEMENTS_MAX: u32 = 128;
/// Number of the first slot of device memory.
const DEVICE_SLOT_FIRST: u32 = APERTURE_SLOT_FIRST + APERTURE_CHUNKS_MAX;
const _: () = assert!(DEVICE_SLOT_FIRST + DEVICE_PLACEMENTS_MAX <= PASSTHROUGH_SLOT_FIRST);

/// The memory slots over device memory in an aperture, one for each piece, by the piece's offset in
/// the aperture.
pub struct DeviceSlots {
    slots: Arc<dyn MemorySlots>,
    shown: BTreeMap<u64, OwnedSlot<Box<dyn DeviceMapping>>>,
}

impl DeviceSlots {
    /// Returns an empty set, whose memory slots `slots` will add and delete.
    pub fn new(slots: Arc<dyn MemorySlots>) -> Self {
        Self {
            slots,
            shown: BTreeMap::new(),
        }
    }

    /// Returns whether another piece of device memory can get a slot.
    pub fn has_room(&self) -> bool {
        self.shown.len() < DEVICE_PLACEMENTS_MAX as usize
    }

    /// Returns the address in this process of byte `within` of the device memory that is shown at
    /// aperture offset `start`; `None` if nothing is shown there, or `within` is outside.
    pub fn address(&self, start: u64, within: u64) -> Option<*mut u8> {
        let shown = self.shown.get(&start)?;
        let first = shown.memory()?.as_ptr().as_ptr();
        (within < shown.slot().bytes).then(|| first.wrapping_add(within as usize))
    }

    /// Makes `bytes` bytes of `mapping` appear at `offset` of the aperture: at once if `base` is
    /// the guest-physical address of the aperture, with the next [`Self::put_up`] if `base` is
    /// `None`.
    ///
    /// # Errors
    /// `ENOSPC` if no slot is left, or the hypervisor's error if it refuses the slot. The guest
    /// then sees nothing of `mapping`.
    #[allow(unsafe_code)] // Gives the guest memory.
    pub fn show(
        &mut self,
        offset: u64,
        mapping: Box<dyn DeviceMapping>,
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
        if let Some(base) = base {
            shown.add(base + offset)?;
        }
        self.shown.insert(offset, shown);
        Ok(())
    }

    /// Removes what [`Self::show`] made appear at `offset`, if any. When this returns, the guest
    /// cannot reach the memory.
    ///
    /// # Errors
    /// The hypervisor's error if it does not delete the slot; the guest then still sees the memory.
    pub fn hide(&mut self, offset: u64) -> io::Result<()> {
        self.shown
            .get_mut(&offset)
            .map_or(Ok(()), OwnedSlot::delete)?;
        // Only now may the driver unmap: then its addresses are free for other memory.
        self.shown.remove(&offset);
        Ok(())
    }

    /// Adds all slots that do not exist yet, for an aperture at guest-physical address `base`.
    ///
    /// # Errors
    /// The hypervisor's error if it refuses a slot.
    pub fn put_up(&mut self, base: u64) -> io::Result<()> {
        let mut all = self.shown.iter_mut();
        all.try_for_each(|(offset, shown)| shown.add(base + offset))
    }

    /// Deletes all slots, so that the guest sees no device memory until [`Self::put_up`] adds them
    /// again.
    ///
    /// # Errors
    /// The hypervisor's error if it does not delete a slot; then some slots still exist.
    pub fn take_down(&mut self) -> io::Result<()> {
        self.shown.values_mut().try_for_each(OwnedSlot::delete)
    }
}

#[cfg(test)]
mod tests;
