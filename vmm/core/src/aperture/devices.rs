//! Memory of devices in the aperture: each placement has a memory slot of its own, over the addresses that the
//! device's driver chose. `docs/decisions/0006-device-memory-slots.md` says why.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use causeway_mediator::host::PlaceError;
use causeway_memory::{DeviceMapping, DeviceMemory};
use causeway_protocol::Access;

use super::Placement;
use super::slots::{ChunkSlots, SLOTS_MAX};
use crate::hypervisor::{APERTURE_SLOT_FIRST, MemorySlots, PASSTHROUGH_SLOT_FIRST, Slot};

/// Most placements of device memory at a time. With guest RAM and the chunks of the window, their slots are fewer
/// than the 509 that kernels before 5.12 have.
pub const DEVICE_PLACEMENTS_MAX: u32 = 128;
/// Number of the first slot of device memory.
const DEVICE_SLOT_FIRST: u32 = APERTURE_SLOT_FIRST + SLOTS_MAX as u32;
const _: () = assert!(DEVICE_SLOT_FIRST + DEVICE_PLACEMENTS_MAX <= PASSTHROUGH_SLOT_FIRST);

/// A placement that the guest can access.
struct Shown {
    number: u32,
    bytes: u64,
    read_only: bool,
    standing: bool,
    mapping: Box<dyn DeviceMapping>,
}

/// The slots of device memory, by aperture offset.
pub struct DeviceSlots {
    slots: Arc<dyn MemorySlots>,
    shown: BTreeMap<u64, Shown>,
}

impl DeviceSlots {
    /// None yet.
    pub fn new(slots: Arc<dyn MemorySlots>) -> Self {
        Self {
            slots,
            shown: BTreeMap::new(),
        }
    }

    /// Whether there is a slot left.
    pub fn has_room(&self) -> bool {
        self.shown.len() < DEVICE_PLACEMENTS_MAX as usize
    }

    /// The memory at aperture offset `start + within`, of what is shown at `start`.
    pub fn address(&self, start: u64, within: u64) -> Option<*mut u8> {
        let shown = self.shown.get(&start)?;
        let first = shown.mapping.as_ptr().as_ptr();
        (within < shown.bytes).then(|| first.wrapping_add(within as usize))
    }

    /// Shows the guest `bytes` bytes of `mapping` at `offset`, at once if slots may stand (`base`).
    ///
    /// # Errors
    /// What the hypervisor said; nothing is shown then.
    fn show(
        &mut self,
        offset: u64,
        mapping: Box<dyn DeviceMapping>,
        bytes: u64,
        read_only: bool,
        base: Option<u64>,
    ) -> io::Result<()> {
        let taken = |number| self.shown.values().any(|shown| shown.number == number);
        let numbers = DEVICE_SLOT_FIRST..DEVICE_SLOT_FIRST + DEVICE_PLACEMENTS_MAX;
        let Some(number) = { numbers }.find(|number| !taken(*number)) else {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        };
        let mut shown = Shown {
            number,
            bytes,
            read_only,
            standing: false,
            mapping,
        };
        if let Some(base) = base {
            add(&*self.slots, &mut shown, base + offset)?;
        }
        self.shown.insert(offset, shown);
        Ok(())
    }

    /// Ends what [`Self::show`] began, if it did. When this returns, the guest cannot reach the memory any more.
    ///
    /// # Errors
    /// What the hypervisor said; then nothing changed.
    fn hide(&mut self, offset: u64) -> io::Result<()> {
        if let Some(shown) = self.shown.get_mut(&offset) {
            delete(&*self.slots, shown)?;
        }
        // Only now may the driver unmap: the addresses are anybody's then.
        self.shown.remove(&offset);
        Ok(())
    }

    /// Adds what is missing, for an aperture at `base`.
    ///
    /// # Errors
    /// What the hypervisor said.
    pub fn put_up(&mut self, base: u64) -> io::Result<()> {
        for (offset, shown) in &mut self.shown {
            add(&*self.slots, shown, base + offset)?;
        }
        Ok(())
    }

    /// Deletes all slots; what is shown is remembered.
    ///
    /// # Errors
    /// What the hypervisor said; then some still stand.
    pub fn take_down(&mut self) -> io::Result<()> {
        let mut all = self.shown.values_mut();
        all.try_for_each(|shown| delete(&*self.slots, shown))
    }
}

impl Drop for DeviceSlots {
    fn drop(&mut self) {
        while let Some((offset, mut shown)) = self.shown.pop_first() {
            if let Err(e) = delete(&*self.slots, &mut shown) {
                log::error!(
                    "cannot delete the memory slot at aperture offset {offset:#x}, so its device memory stays mapped: {e}"
                );
                // A slot over addresses that are given back would show the guest whatever is mapped there next.
                std::mem::forget(shown);
            }
        }
    }
}

#[allow(unsafe_code)] // Gives the guest memory.
fn add(slots: &dyn MemorySlots, shown: &mut Shown, gpa: u64) -> io::Result<()> {
    if shown.standing {
        return Ok(());
    }
    let slot = Slot {
        number: shown.number,
        gpa,
        host: shown.mapping.as_ptr().as_ptr() as u64,
        bytes: shown.bytes,
        read_only: shown.read_only,
    };
    // SAFETY: the mapping keeps its addresses until it is dropped, and is dropped after the slot was deleted (or
    // never). By its contract nobody holds references to its content.
    unsafe { slots.set(slot) }?;
    shown.standing = true;
    Ok(())
}

fn delete(slots: &dyn MemorySlots, shown: &mut Shown) -> io::Result<()> {
    if shown.standing {
        slots.delete(shown.number)?;
        shown.standing = false;
    }
    Ok(())
}

/// Has the guest see a placement as its rights say. On failure it is a hole.
pub(super) fn show(
    slots: &mut ChunkSlots,
    offset: u64,
    memory: &Arc<dyn DeviceMemory>,
    placement: &Placement,
) -> Result<(), PlaceError> {
    hide(slots, offset)?;
    let bytes = placement.bytes;
    if placement.access == Access::None {
        return Ok(());
    }
    let mapping = memory
        .map(placement.from, bytes)
        .map_err(|source| PlaceError::Map { bytes, source })?;
    let read_only = placement.access == Access::Read;
    let (devices, base) = slots.devices_mut();
    devices
        .show(offset, mapping, bytes, read_only, base)
        .map_err(|source| PlaceError::Slot { offset, source })
}

/// Has the guest see a hole in place of a placement.
pub(super) fn hide(slots: &mut ChunkSlots, offset: u64) -> Result<(), PlaceError> {
    let (devices, _) = slots.devices_mut();
    devices
        .hide(offset)
        .map_err(|source| PlaceError::Slot { offset, source })
}

#[cfg(test)]
mod tests;
