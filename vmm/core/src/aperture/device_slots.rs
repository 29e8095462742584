//! Memory of devices in the aperture: each placement has a memory slot of its own, over the
//! addresses that the device's driver chose. `docs/decisions/0006-device-memory-slots.md` says why.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use causeway_memory::DeviceMapping;

use crate::hypervisor::{
    APERTURE_CHUNKS_MAX, APERTURE_SLOT_FIRST, MemorySlots, OwnedSlot, PASSTHROUGH_SLOT_FIRST, Slot,
};

/// Most placements of device memory at a time. With guest RAM and the chunks of the window, their
/// slots are fewer than the 509 that kernels before 5.12 have.
pub const DEVICE_PLACEMENTS_MAX: u32 = 128;
/// Number of the first slot of device memory.
const DEVICE_SLOT_FIRST: u32 = APERTURE_SLOT_FIRST + APERTURE_CHUNKS_MAX;
const _: () = assert!(DEVICE_SLOT_FIRST + DEVICE_PLACEMENTS_MAX <= PASSTHROUGH_SLOT_FIRST);

/// The slots of device memory, by aperture offset.
pub struct DeviceSlots {
    slots: Arc<dyn MemorySlots>,
    shown: BTreeMap<u64, OwnedSlot<Box<dyn DeviceMapping>>>,
}

impl DeviceSlots {
    /// Returns no slots yet.
    pub fn new(slots: Arc<dyn MemorySlots>) -> Self {
        Self {
            slots,
            shown: BTreeMap::new(),
        }
    }

    /// Returns whether a slot is left.
    pub fn has_room(&self) -> bool {
        self.shown.len() < DEVICE_PLACEMENTS_MAX as usize
    }

    /// Returns the memory at aperture offset `start + within`, of the placement at `start`.
    pub fn address(&self, start: u64, within: u64) -> Option<*mut u8> {
        let shown = self.shown.get(&start)?;
        let first = shown.memory()?.as_ptr().as_ptr();
        (within < shown.slot().bytes).then(|| first.wrapping_add(within as usize))
    }

    /// Shows the guest `bytes` bytes of `mapping` at `offset`; at once if `base` is the address of
    /// an aperture whose slots may stand.
    ///
    /// # Errors
    /// `ENOSPC` if no slot is left, or the hypervisor's error; then nothing is shown.
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

    /// Ends what [`Self::show`] began, if it did. Then the guest cannot reach the memory.
    ///
    /// # Errors
    /// The hypervisor's error; then nothing changed.
    pub fn hide(&mut self, offset: u64) -> io::Result<()> {
        self.shown
            .get_mut(&offset)
            .map_or(Ok(()), OwnedSlot::delete)?;
        // Only now may the driver unmap: then its addresses are free for other memory.
        self.shown.remove(&offset);
        Ok(())
    }

    /// Adds the slots that are missing, for an aperture at `base`.
    ///
    /// # Errors
    /// The hypervisor's error.
    pub fn put_up(&mut self, base: u64) -> io::Result<()> {
        let mut all = self.shown.iter_mut();
        all.try_for_each(|(offset, shown)| shown.add(base + offset))
    }

    /// Deletes all slots; [`Self::put_up`] adds them again.
    ///
    /// # Errors
    /// The hypervisor's error; then some still stand.
    pub fn take_down(&mut self) -> io::Result<()> {
        self.shown.values_mut().try_for_each(OwnedSlot::delete)
    }
}

#[cfg(test)]
mod tests;
