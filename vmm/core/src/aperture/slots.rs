//! The memory slots under the aperture.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use causeway_memory::Window;

use super::devices::DeviceSlots;
use crate::hypervisor::{APERTURE_SLOT_FIRST, MemorySlots, Slot};

/// Size of a slot, unless the aperture is so large that there would be more than [`SLOTS_MAX`].
/// Chosen by measuring: `docs/decisions/0002-aperture-slots.md`.
pub const CHUNK_BYTES: u64 = 256 << 20;
/// Most slots of one aperture. Kernels before 5.12 have 509 in all.
pub const SLOTS_MAX: u64 = 256;

/// Slots of one size over a window of host addresses: one per chunk of the aperture, added when the chunk is first
/// used, and kept. Beside them those of device memory, which is not in the window.
///
/// Slots *stand* (exist in the hypervisor) while the aperture has an address and nobody suspends them.
pub struct ChunkSlots {
    slots: Arc<dyn MemorySlots>,
    devices: DeviceSlots,
    window: Arc<Window>,
    chunk_bytes: u64,
    /// Chunks that were used.
    used: BTreeSet<u32>,
    /// Chunks whose slot is in the hypervisor.
    standing: BTreeSet<u32>,
    /// Guest-physical address of the aperture, if the guest lets it be decoded.
    base: Option<u64>,
    suspensions: u32,
}

impl ChunkSlots {
    /// Slots over a window, which becomes the guest's to access. Nothing stands yet.
    pub fn new(slots: Arc<dyn MemorySlots>, window: Arc<Window>) -> Self {
        Self {
            devices: DeviceSlots::new(Arc::clone(&slots)),
            slots,
            chunk_bytes: chunk_bytes(window.bytes()),
            window,
            used: BTreeSet::new(),
            standing: BTreeSet::new(),
            base: None,
            suspensions: 0,
        }
    }

    /// Sees that the slots under `range` (offsets into the aperture) stand as soon as slots may stand.
    ///
    /// # Errors
    /// What the hypervisor said. Slots that were added stay: they are over nothing, and will be used.
    pub fn cover(&mut self, range: Range<u64>) -> io::Result<()> {
        let first = range.start / self.chunk_bytes;
        let last = (range.end - 1) / self.chunk_bytes;
        for chunk in first..=last {
            let chunk = chunk as u32; // At most SLOTS_MAX chunks.
            self.used.insert(chunk);
            if self.may_stand() {
                self.add(chunk)?;
            }
        }
        Ok(())
    }

    /// Whether nothing stands, nor will, under the chunk at `start`.
    pub fn is_unused(&self, start: u64) -> bool {
        !self.used.contains(&((start / self.chunk_bytes) as u32))
    }

    /// Size of a chunk in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Slots of device memory.
    pub fn devices(&self) -> &DeviceSlots {
        &self.devices
    }

    /// Slots of device memory, and the address of the aperture if they may stand now.
    pub fn devices_mut(&mut self) -> (&mut DeviceSlots, Option<u64>) {
        let base = self.base.filter(|_| self.suspensions == 0);
        (&mut self.devices, base)
    }

    /// Moves the aperture to another guest-physical address, or takes it away.
    ///
    /// # Errors
    /// What the hypervisor said; the aperture then has no address.
    pub fn relocate(&mut self, base: Option<u64>) -> io::Result<()> {
        if self.base == base {
            return Ok(());
        }
        self.take_down()?;
        self.base = base;
        self.put_up().inspect_err(|_| {
            if let Err(e) = self.take_down() {
                log::error!("memory slots of the aperture are left behind: {e}");
            }
            self.base = None;
        })
    }

    /// Takes all slots down until as many [`Self::resume`] have come. Then every access to the aperture is an exit.
    ///
    /// # Errors
    /// What the hypervisor said; then some slots still stand, and nothing is suspended.
    pub fn suspend(&mut self) -> io::Result<()> {
        self.take_down()?;
        self.suspensions += 1;
        Ok(())
    }

    /// Ends a suspension.
    ///
    /// # Errors
    /// What the hypervisor said; slots that are missing are added with the next [`Self::cover`] of their chunk.
    pub fn resume(&mut self) -> io::Result<()> {
        self.suspensions = self.suspensions.saturating_sub(1);
        self.put_up()
    }

    /// Whether someone suspends the slots.
    pub fn suspended(&self) -> bool {
        self.suspensions > 0
    }

    /// Guest-physical address of the aperture, if it has one.
    pub fn base(&self) -> Option<u64> {
        self.base
    }

    fn may_stand(&self) -> bool {
        self.base.is_some() && self.suspensions == 0
    }

    fn put_up(&mut self) -> io::Result<()> {
        if self.may_stand() {
            for chunk in self.used.clone() {
                self.add(chunk)?;
            }
            let (devices, base) = self.devices_mut();
            base.map_or(Ok(()), |base| devices.put_up(base))?;
        }
        Ok(())
    }

    fn take_down(&mut self) -> io::Result<()> {
        while let Some(&chunk) = self.standing.first() {
            self.slots.delete(APERTURE_SLOT_FIRST + chunk)?;
            self.standing.remove(&chunk);
        }
        self.devices.take_down()
    }

    #[allow(unsafe_code)] // Gives the guest memory.
    fn add(&mut self, chunk: u32) -> io::Result<()> {
        let (Some(base), false) = (self.base, self.standing.contains(&chunk)) else {
            return Ok(());
        };
        let offset = u64::from(chunk) * self.chunk_bytes;
        let slot = Slot {
            number: APERTURE_SLOT_FIRST + chunk,
            gpa: base + offset,
            host: self.window.as_ptr().as_ptr() as u64 + offset,
            bytes: self.chunk_bytes,
            read_only: false,
        };
        // SAFETY: the window stays reserved until this is dropped, which deletes the slot first (or leaks the window).
        // By its contract nobody holds references to its content.
        unsafe { self.slots.set(slot) }?;
        self.standing.insert(chunk);
        Ok(())
    }
}

impl Drop for ChunkSlots {
    fn drop(&mut self) {
        if let Err(e) = self.take_down() {
            log::error!(
                "cannot delete a memory slot of the aperture, so its addresses stay reserved: {e}"
            );
            // A slot over addresses that are given back would show the guest whatever is mapped there next.
            std::mem::forget(Arc::clone(&self.window));
        }
    }
}

/// Size of a slot for an aperture of `bytes` bytes, a power of two.
pub fn chunk_bytes(bytes: u64) -> u64 {
    CHUNK_BYTES.max(bytes / SLOTS_MAX).min(bytes)
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
