//! The memory slots under the aperture.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use causeway_mediator::host::PlaceError;
use causeway_memory::{DeviceMapping, Window};
use causeway_protocol::Access;

use super::device_slots::{DeviceSlots, Hidden};
use crate::hypervisor::{APERTURE_CHUNKS_MAX, APERTURE_SLOT_FIRST, MemorySlots, OwnedSlot, Slot};

/// Usual size in bytes of a chunk: a part of the aperture that has a memory slot of its own. The
/// size was chosen by measuring (`docs/decisions/0002-aperture-slots.md`). Chunks are larger if the
/// aperture would otherwise need more than [`APERTURE_CHUNKS_MAX`] slots.
pub const CHUNK_BYTES: u64 = 256 << 20;

/// The memory slots under the aperture of one VM. The aperture is divided into chunks of equal
/// size; each chunk gets a slot when it is first used, and keeps it. Memory of devices has slots of
/// its own ([`DeviceSlots`]).
///
/// The slots exist in the hypervisor while the aperture has a guest-physical address and
/// [`Self::suspend`] has not deleted them for the time being.
pub struct ChunkSlots {
    slots: Arc<dyn MemorySlots>,
    devices: DeviceSlots,
    window: Arc<Window>,
    chunk_bytes: u64,
    /// Chunks that were used, by number.
    used: BTreeMap<u32, OwnedSlot<Arc<Window>>>,
    /// Guest-physical address of the aperture, if the guest lets it be decoded.
    base: Option<u64>,
    suspensions: u32,
}

impl ChunkSlots {
    /// Returns the memory slots of an aperture whose memory appears in `window`, a range of this
    /// process's addresses. `slots` is the hypervisor interface that adds and deletes slots. At
    /// first no slot exists in the hypervisor.
    pub fn new(slots: Arc<dyn MemorySlots>, window: Arc<Window>) -> Self {
        Self {
            devices: DeviceSlots::new(Arc::clone(&slots)),
            slots,
            chunk_bytes: chunk_bytes(window.bytes()),
            window,
            used: BTreeMap::new(),
            base: None,
            suspensions: 0,
        }
    }

    /// Gives each chunk that overlaps `range`, in offsets into the aperture, a memory slot. The
    /// slots are added at once if the aperture has a guest-physical address and its slots are not
    /// suspended, otherwise when both are so.
    ///
    /// # Errors
    /// The hypervisor's error if it refuses a slot. Slots that this call added before stay. They do
    /// no harm, since no memory is mapped under them yet.
    pub fn cover(&mut self, range: Range<u64>) -> io::Result<()> {
        let base = self.standing_base();
        let first = range.start / self.chunk_bytes;
        let last = (range.end - 1) / self.chunk_bytes;
        for chunk in first..=last {
            let number = chunk as u32; // At most APERTURE_CHUNKS_MAX.
            let offset = chunk * self.chunk_bytes;
            let fresh = || chunk_slot(&self.slots, &self.window, number, offset, self.chunk_bytes);
            let slot = self.used.entry(number).or_insert_with(fresh);
            base.map_or(Ok(()), |base| slot.add(base + offset))?;
        }
        Ok(())
    }

    /// Returns whether the chunk that begins at offset `start` of the aperture has never been used:
    /// no memory slot covers it then.
    pub fn is_unused(&self, start: u64) -> bool {
        !self.used.contains_key(&((start / self.chunk_bytes) as u32))
    }

    /// Returns the size in bytes of a chunk, which is also the size of its memory slot.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Returns the memory slots over memory of devices.
    pub fn devices(&self) -> &DeviceSlots {
        &self.devices
    }

    /// Returns what [`Self::hide_device`] has removed: mappings that a driver unmaps when they are
    /// dropped.
    pub fn take_hidden(&mut self) -> Hidden {
        self.devices.take_hidden()
    }

    /// Makes the first `bytes` bytes of a device's memory, which this takes from `mapping`, appear
    /// at `offset` of the aperture, with the guest's rights `access`; nothing if there is none.
    /// Replaces the device memory that an earlier call showed at this `offset`.
    ///
    /// # Errors
    /// [`PlaceError::Slot`] if the hypervisor refuses or does not delete a slot. If it does not
    /// delete the slot of an earlier call, the guest still sees the memory of that call; otherwise
    /// it sees nothing at `offset`.
    pub fn show_device(
        &mut self,
        offset: u64,
        mapping: &mut Option<Box<dyn DeviceMapping>>,
        bytes: u64,
        access: Access,
    ) -> Result<(), PlaceError> {
        self.hide_device(offset)?;
        if mapping.is_none() {
            return Ok(());
        }
        let base = self.standing_base();
        self.devices
            .show(offset, mapping, bytes, access == Access::Read, base)
            .map_err(|source| PlaceError::Slot { offset, source })
    }

    /// Removes the device memory that [`Self::show_device`] has made appear at `offset`. Does
    /// nothing if there is none.
    ///
    /// # Errors
    /// [`PlaceError::Slot`] if the hypervisor does not delete the slot; the guest then still sees
    /// the memory.
    pub fn hide_device(&mut self, offset: u64) -> Result<(), PlaceError> {
        let hidden = self.devices.hide(offset);
        hidden.map_err(|source| PlaceError::Slot { offset, source })
    }

    /// Moves all slots when the aperture moves to guest-physical address `base`. Deletes them all
    /// if `base` is `None`, so that the guest cannot reach the aperture.
    ///
    /// # Errors
    /// The hypervisor's error if it refuses a slot; the aperture then has no address.
    pub fn relocate(&mut self, base: Option<u64>) -> io::Result<()> {
        if self.base == base {
            return Ok(());
        }
        self.take_down()?;
        self.base = base;
        self.put_up().inspect_err(|_| {
            if let Err(e) = self.take_down() {
                log::error!(
                    "KVM cannot move the guest's aperture (BAR 2) to its new address, and cannot \
                     delete the memory slots that it already has there: {e}"
                );
            }
            self.base = None;
        })
    }

    /// Deletes all slots for the time being, so that every access to the aperture is an exit. The
    /// slots come back when [`Self::resume`] has been called as often as this function.
    ///
    /// # Errors
    /// The hypervisor's error if it does not delete a slot. Some slots then still exist, and this
    /// call needs no call of [`Self::resume`].
    pub fn suspend(&mut self) -> io::Result<()> {
        self.take_down()?;
        self.suspensions += 1;
        Ok(())
    }

    /// Ends the effect of one call of [`Self::suspend`]. Adds all slots again if no other
    /// suspension is under way.
    ///
    /// # Errors
    /// The hypervisor's error if it refuses a slot. The next call of [`Self::cover`] for the slot's
    /// chunk tries to add it again.
    pub fn resume(&mut self) -> io::Result<()> {
        self.suspensions = self.suspensions.saturating_sub(1);
        self.put_up()
    }

    /// Returns whether [`Self::suspend`] has been called more often than [`Self::resume`], so that
    /// the slots are deleted for the time being.
    pub fn suspended(&self) -> bool {
        self.suspensions > 0
    }

    /// Returns the guest-physical address of the aperture; `None` if it has no address.
    pub fn base(&self) -> Option<u64> {
        self.base
    }

    /// Returns the address of the aperture, if slots may exist in the hypervisor now.
    fn standing_base(&self) -> Option<u64> {
        self.base.filter(|_| self.suspensions == 0)
    }

    fn put_up(&mut self) -> io::Result<()> {
        let Some(base) = self.standing_base() else {
            return Ok(());
        };
        for (number, slot) in &mut self.used {
            slot.add(base + u64::from(*number) * self.chunk_bytes)?;
        }
        self.devices.put_up(base)
    }

    fn take_down(&mut self) -> io::Result<()> {
        self.used.values_mut().try_for_each(OwnedSlot::delete)?;
        self.devices.take_down()
    }
}

/// Returns the slot over chunk `number`, which is at `offset` of the window.
#[allow(unsafe_code)] // Gives the guest memory.
fn chunk_slot(
    slots: &Arc<dyn MemorySlots>,
    window: &Arc<Window>,
    number: u32,
    offset: u64,
    bytes: u64,
) -> OwnedSlot<Arc<Window>> {
    let slot = Slot {
        number: APERTURE_SLOT_FIRST + number,
        gpa: 0,
        host: window.as_ptr().as_ptr() as u64 + offset,
        bytes,
        read_only: false,
    };
    // SAFETY: the window stays reserved until it is dropped. By its contract nobody holds
    // references to its content.
    unsafe { OwnedSlot::new(slots, slot, Arc::clone(window)) }
}

/// Returns the size in bytes of each chunk of an aperture of `bytes` bytes, a power of two. A chunk
/// is a part of the aperture that has a memory slot of its own.
pub fn chunk_bytes(bytes: u64) -> u64 {
    CHUNK_BYTES
        .max(bytes / u64::from(APERTURE_CHUNKS_MAX))
        .min(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::fake::{Call, Fake};

    const GIB: u64 = 1 << 30;
    const BASE: u64 = 256 * GIB;

    fn slots(fake: &Arc<Fake>) -> ChunkSlots {
        let window = Arc::new(Window::reserve(4 * GIB).unwrap());
        ChunkSlots::new(Arc::clone(fake) as _, window)
    }

    #[test]
    fn a_slot_is_added_with_the_first_use_of_its_chunk_and_kept() {
        let fake = Arc::new(Fake::default());
        let mut slots = slots(&fake);
        slots.relocate(Some(BASE)).unwrap();
        assert!(fake.state().calls.is_empty());
        slots.cover(0..4096).unwrap();
        slots.cover(4096..8192).unwrap();
        assert_eq!(fake.state().calls, [Call::Set(16)]);
        slots
            .cover(CHUNK_BYTES - 4096..2 * CHUNK_BYTES + 4096)
            .unwrap();
        assert_eq!(fake.state().calls.len(), 3);
        let slot = fake.state().slots[&18];
        assert_eq!(slot.gpa, BASE + 2 * CHUNK_BYTES);
        let window = slots.window.as_ptr().as_ptr() as u64;
        assert_eq!(slot.host, window + 2 * CHUNK_BYTES);
    }

    #[test]
    fn nothing_stands_without_an_address_or_while_suspended() {
        let fake = Arc::new(Fake::default());
        let mut slots = slots(&fake);
        slots.cover(0..4096).unwrap();
        assert!(fake.state().slots.is_empty());
        slots.relocate(Some(BASE)).unwrap();
        assert_eq!(fake.state().slots.len(), 1);
        slots.suspend().unwrap();
        slots.suspend().unwrap();
        slots.cover(GIB..GIB + 4096).unwrap();
        slots.resume().unwrap();
        assert!(fake.state().slots.is_empty(), "one suspension is left");
        slots.resume().unwrap();
        assert_eq!(fake.state().slots.len(), 2);
        slots.relocate(None).unwrap();
        assert!(fake.state().slots.is_empty());
    }

    #[test]
    fn relocation_moves_every_slot_and_a_failed_one_leaves_none() {
        let fake = Arc::new(Fake::default());
        let mut slots = slots(&fake);
        slots.relocate(Some(BASE)).unwrap();
        slots.cover(0..2 * CHUNK_BYTES).unwrap();
        slots.relocate(Some(2 * BASE)).unwrap();
        assert_eq!(fake.state().slots[&17].gpa, 2 * BASE + CHUNK_BYTES);
        fake.fail_after(3, libc::ENOMEM);
        slots.relocate(Some(BASE)).unwrap_err();
        assert!(fake.state().slots.is_empty());
        assert_eq!(slots.base(), None);
        slots.relocate(Some(BASE)).unwrap();
        assert_eq!(fake.state().slots.len(), 2);
    }

    #[test]
    fn a_slot_that_was_refused_is_tried_again() {
        let fake = Arc::new(Fake::default());
        let mut slots = slots(&fake);
        slots.relocate(Some(BASE)).unwrap();
        fake.fail_after(0, libc::ENOMEM);
        let error = slots.cover(0..4096).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
        slots.cover(0..4096).unwrap();
        assert_eq!(fake.state().slots.len(), 1);
    }

    #[test]
    fn dropping_deletes_all() {
        let fake = Arc::new(Fake::default());
        let mut slots = slots(&fake);
        slots.relocate(Some(BASE)).unwrap();
        slots.cover(0..GIB).unwrap();
        drop(slots);
        assert!(fake.state().slots.is_empty());
    }

    #[test]
    fn large_apertures_have_larger_chunks() {
        assert_eq!(chunk_bytes(64 << 20), 64 << 20);
        assert_eq!(chunk_bytes(64 * GIB), CHUNK_BYTES);
        assert_eq!(chunk_bytes(256 * GIB), GIB);
    }
}
