//! Memory slots over the mapped parts of a passed-through device's BAR. The slots exist while the
//! guest has the BAR enabled, at the BAR's address.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use causeway_host_vfio::{Area, Device, MapError, Mapping, Region};
use parking_lot::Mutex;

use crate::hypervisor::{MemorySlots, OwnedSlot, PASSTHROUGH_SLOT_FIRST, PASSTHROUGH_SLOTS, Slot};

/// The numbers of memory slots that are still free for a VM's passed-through devices.
#[derive(Debug)]
pub struct SlotNumbers(Range<u32>);

impl Default for SlotNumbers {
    fn default() -> Self {
        Self(PASSTHROUGH_SLOT_FIRST..PASSTHROUGH_SLOT_FIRST + PASSTHROUGH_SLOTS)
    }
}

/// A mapped part.
struct Part {
    area: Area,
    slot: OwnedSlot<Mapping>,
}

/// The memory slots over one BAR of a passed-through device. Through them, the guest reaches the
/// parts of the BAR that VFIO can map without an exit.
pub struct BarSlots {
    state: Mutex<State>,
}

struct State {
    parts: Vec<Part>,
    /// Where the BAR is decoded.
    base: Option<u64>,
    was_placed: bool,
    /// Times that the guest has put the BAR somewhere else, or had it decoded again.
    moves: u64,
}

impl BarSlots {
    /// Maps the parts `areas` of the BAR `region` into this process, and returns a memory slot over
    /// each. No slot exists in the hypervisor before [`Self::relocate`]. If `numbers` has fewer
    /// slot numbers left than there are parts, the last parts get no slots, and accesses to them
    /// are exits.
    ///
    /// # Errors
    /// [`MapError`] if a part cannot be mapped.
    pub fn new(
        slots: &Arc<dyn MemorySlots>,
        numbers: &mut SlotNumbers,
        device: &Device,
        region: &Region,
        areas: &[Area],
    ) -> Result<Self, MapError> {
        let mut parts = Vec::with_capacity(areas.len());
        for area in areas {
            let Some(number) = numbers.0.next() else {
                log::warn!(
                    "{region} of device {address} has more mappable parts than the VM has memory \
                     slots left: the guest's accesses to the other parts cause VM exits and are \
                     slow",
                    region = region.index,
                    address = device.address()
                );
                break;
            };
            let mapping = device.map(region.index, area.offset, area.bytes)?;
            let slot = Slot {
                number,
                gpa: 0,
                host: mapping.as_ptr().as_ptr() as u64,
                bytes: area.bytes,
                read_only: !region.writable,
            };
            #[allow(unsafe_code)] // Gives the guest memory of a device.
            // SAFETY: the mapping keeps its addresses until it is dropped. By its contract nobody
            // holds references to its content.
            let slot = unsafe { OwnedSlot::new(slots, slot, mapping) };
            parts.push(Part { area: *area, slot });
        }
        Ok(Self {
            state: Mutex::new(State {
                parts,
                base: None,
                was_placed: false,
                moves: 0,
            }),
        })
    }

    /// Moves the slots to the BAR's new guest-physical address `base`. Deletes them if `base` is
    /// `None`: then the guest has disabled the BAR.
    ///
    /// # Errors
    /// The hypervisor's error. If a slot cannot be added, all are deleted; a slot that cannot be
    /// deleted stays at its old address.
    pub fn relocate(&self, base: Option<u64>) -> io::Result<()> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // What a failure left standing stands elsewhere.
        let deleted = delete_all(&mut state.parts);
        state.base = base.filter(|_| deleted.is_ok());
        deleted?;
        let Some(base) = base else { return Ok(()) };
        if std::mem::replace(&mut state.was_placed, true) {
            state.moves += 1;
        }
        let mut parts = state.parts.iter_mut();
        let added = parts.try_for_each(|part| part.slot.add(base + part.area.offset));
        if added.is_err() {
            delete_all(&mut state.parts)?;
            state.base = None;
        }
        added
    }

    /// Returns the parts of the BAR that have slots.
    pub fn areas(&self) -> Vec<Area> {
        let state = self.state.lock();
        state.parts.iter().map(|part| part.area).collect()
    }

    /// Returns the guest-physical address of the BAR; `None` if its slots do not exist in the
    /// hypervisor now.
    pub fn base(&self) -> Option<u64> {
        self.state.lock().base
    }

    /// Returns how many times the guest has moved the BAR, or enabled it again after disabling it.
    pub fn moves(&self) -> u64 {
        self.state.lock().moves
    }
}

/// Deletes all slots that can be deleted.
///
/// # Errors
/// The hypervisor's first error.
fn delete_all(parts: &mut [Part]) -> io::Result<()> {
    let deleted = parts.iter_mut().map(|part| part.slot.delete());
    deleted.fold(Ok(()), Result::and)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::fake::{Call, Fake};
    use causeway_host_vfio::RegionIndex;
    use causeway_host_vfio::fake::FakeHardware;

    const FIRST: u32 = PASSTHROUGH_SLOT_FIRST;
    const GPA: u64 = 0xe100_0000;

    fn slots(hypervisor: &Arc<Fake>) -> BarSlots {
        let fake = FakeHardware::new().unwrap();
        let fake = fake.with_region(RegionIndex::Bar(0), 0x8000).unwrap();
        let device = Arc::new(fake).device("00:03.0".parse().unwrap()).unwrap();
        let region = device.region(RegionIndex::Bar(0)).unwrap();
        let areas = [(0, 0x1000), (0x3000, 0x5000)].map(|(offset, bytes)| Area { offset, bytes });
        let numbers = &mut SlotNumbers::default();
        BarSlots::new(
            &(Arc::clone(hypervisor) as _),
            numbers,
            &device,
            region,
            &areas,
        )
        .unwrap()
    }

    fn places(hypervisor: &Fake) -> Vec<(u64, u64)> {
        let state = hypervisor.state();
        state
            .slots
            .values()
            .map(|slot| (slot.gpa, slot.bytes))
            .collect()
    }

    #[test]
    fn slots_follow_the_bar() {
        let hypervisor = Arc::new(Fake::default());
        let slots = slots(&hypervisor);
        assert!(places(&hypervisor).is_empty());
        slots.relocate(Some(GPA)).unwrap();
        assert_eq!(places(&hypervisor), [(GPA, 0x1000), (GPA + 0x3000, 0x5000)]);
        slots.relocate(None).unwrap();
        assert!(places(&hypervisor).is_empty());
        slots.relocate(Some(2 * GPA)).unwrap();
        assert_eq!((slots.base(), slots.moves()), (Some(2 * GPA), 1));
        drop(slots);
        assert!(places(&hypervisor).is_empty());
    }

    #[test]
    fn what_fails_half_way_is_taken_back() {
        let hypervisor = Arc::new(Fake::default());
        let slots = slots(&hypervisor);
        hypervisor.fail_after(1, libc::ENOMEM);
        slots.relocate(Some(GPA)).unwrap_err();
        assert!(places(&hypervisor).is_empty() && slots.base().is_none());
        slots.relocate(Some(GPA)).unwrap();
        // One slot cannot be deleted, and goes before the BAR comes elsewhere.
        hypervisor.fail_after(0, libc::EIO);
        slots.relocate(None).unwrap_err();
        assert_eq!(places(&hypervisor), [(GPA, 0x1000)]);
        slots.relocate(Some(2 * GPA)).unwrap();
        assert_eq!(places(&hypervisor)[0].0, 2 * GPA);
        let calls = hypervisor.state().calls.clone();
        assert_eq!(calls[calls.len() - 3], Call::Delete(FIRST));
    }

    #[test]
    fn there_are_as_many_numbers_as_there_are_slots() {
        let mut numbers = SlotNumbers::default();
        assert_eq!(numbers.0.next(), Some(FIRST));
        assert_eq!(numbers.0.count() as u32, PASSTHROUGH_SLOTS - 1);
    }
}
