//! The aperture over a fake hypervisor.

use causeway_memory::{Mapping, PageSize, SharedMemory};

use super::*;
use crate::bus::{BusDevice, Refusal};
use crate::hypervisor::fake::{Call, Fake};

mod faults;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const BASE: u64 = 256 * GIB;

fn aperture(bytes: u64) -> (Aperture, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    let aperture = Aperture::new(bytes, Arc::clone(&fake) as _).unwrap();
    aperture.relocate(Some(BASE)).unwrap();
    (aperture, fake)
}

fn memory(bytes: u64) -> Backing {
    Arc::new(SharedMemory::new("test", bytes, PageSize::Small).unwrap()).into()
}

fn map(backing: &Backing) -> Mapping {
    let (memory, _) = backing.host().unwrap();
    memory.map(0, memory.bytes(), Access::ReadWrite).unwrap()
}

fn read(aperture: &Aperture, offset: u64) -> Result<u64, Refusal> {
    let mut data = [0; 8];
    aperture.read(offset, &mut data).result?;
    Ok(u64::from_le_bytes(data))
}

#[test]
fn what_is_placed_can_be_read_and_written_and_what_is_removed_cannot() {
    let (aperture, _) = aperture(GIB);
    let memory = memory(3 * PAGE_BYTES);
    let own = map(&memory);
    let at = aperture
        .place(&memory, PAGE_BYTES, PAGE_BYTES, Access::ReadWrite)
        .unwrap();
    assert_eq!(aperture.write(at + 8, &7u64.to_le_bytes()).result, Ok(()));
    assert_eq!(
        own.load_u64(PAGE_BYTES + 8, std::sync::atomic::Ordering::Relaxed),
        Ok(7)
    );
    assert_eq!(read(&aperture, at + 8), Ok(7));
    aperture.remove(at).unwrap();
    assert_eq!(read(&aperture, at + 8), Err(Refusal::Hole));
    assert!(aperture.remove(at).is_err());
}

#[test]
fn every_width_and_alignment_reads_what_was_written() {
    let (aperture, _) = aperture(GIB);
    let at = aperture
        .place(&memory(PAGE_BYTES), 0, PAGE_BYTES, Access::ReadWrite)
        .unwrap();
    for bytes in 1..=8usize {
        for shift in 0..8u64 {
            let data: Vec<u8> = (1..=bytes as u8).map(|b| b * 3 + shift as u8).collect();
            assert_eq!(aperture.write(at + shift, &data).result, Ok(()));
            let mut back = vec![0; bytes];
            assert_eq!(aperture.read(at + shift, &mut back).result, Ok(()));
            assert_eq!(back, data);
        }
    }
}

#[test]
fn rights_are_kept_changed_and_taken() {
    let (aperture, _) = aperture(GIB);
    let at = aperture
        .place(&memory(PAGE_BYTES), 0, PAGE_BYTES, Access::Read)
        .unwrap();
    assert_eq!(
        aperture.write(at, &[1]).result,
        Err(Refusal::WriteForbidden)
    );
    assert_eq!(read(&aperture, at), Ok(0));
    aperture.set_access(at, Access::ReadWrite).unwrap();
    assert_eq!(aperture.write(at, &[1]).result, Ok(()));
    aperture.set_access(at, Access::None).unwrap();
    assert_eq!(aperture.write(at, &[1]).result, Err(Refusal::Hole));
    assert_eq!(read(&aperture, at), Err(Refusal::Hole));
    aperture.set_access(at, Access::Read).unwrap();
    assert_eq!(read(&aperture, at), Ok(1), "the memory stayed");
    assert!(aperture.set_access(at + 1, Access::Read).is_err());
}

#[test]
fn a_placement_knows_what_it_shows() {
    let (aperture, _) = aperture(GIB);
    let (memory, other) = (memory(3 * PAGE_BYTES), memory(3 * PAGE_BYTES));
    let (from, bytes) = (PAGE_BYTES, PAGE_BYTES);
    let at = aperture.place(&memory, from, bytes, Access::Read).unwrap();
    let state = aperture.state.lock();
    let shows = |backing, from, bytes| state.placements[&at].shows(backing, from, bytes);
    assert!(shows(&memory, from, bytes));
    assert!(!shows(&other, from, bytes), "memory of the same shape");
    assert!(!shows(&memory, 0, bytes));
    assert!(!shows(&memory, from, 2 * PAGE_BYTES));
}

#[test]
fn an_access_across_the_end_of_a_placement_is_a_hole() {
    let (aperture, _) = aperture(GIB);
    let at = aperture
        .place(&memory(PAGE_BYTES), 0, PAGE_BYTES, Access::ReadWrite)
        .unwrap();
    assert_eq!(read(&aperture, at + PAGE_BYTES - 8), Ok(0));
    assert_eq!(read(&aperture, at + PAGE_BYTES - 4), Err(Refusal::Hole));
    assert_eq!(read(&aperture, at - 8), Err(Refusal::Hole));
}

#[test]
fn large_parts_of_large_pages_stay_congruent() {
    let (aperture, _) = aperture(GIB);
    let memory = memory(8 * MIB);
    let at = aperture.place(&memory, MIB, 4 * MIB, Access::Read).unwrap();
    assert_eq!(at % LARGE_PAGE_BYTES, MIB);
    let next = aperture.place(&memory, 0, 2 * MIB, Access::Read).unwrap();
    assert_eq!(next % LARGE_PAGE_BYTES, 0);
    assert!(next >= at + 4 * MIB || next + 2 * MIB <= at);
    aperture.remove(at).unwrap();
    assert_eq!(
        aperture.place(&memory, 0, 4 * MIB, Access::Read).unwrap(),
        0
    );
}

#[test]
fn memory_of_devices_gets_whole_chunks_that_no_slot_covers() {
    const CHUNK: u64 = super::chunk_slots::CHUNK_BYTES;
    let (aperture, _) = aperture(GIB);
    // Small memory goes to the highest chunk, large memory to the lowest. Both keep their slots.
    for bytes in [PAGE_BYTES, 2 * MIB] {
        let at = aperture.place(&memory(bytes), 0, bytes, Access::Read);
        aperture.remove(at.unwrap()).unwrap();
    }
    let mut state = aperture.state.lock();
    assert_eq!(state.device_room(CHUNK), Some(2 * CHUNK));
    assert_eq!(state.device_room(CHUNK + PAGE_BYTES), None);
    assert_eq!(state.device_room(CHUNK - PAGE_BYTES), Some(CHUNK));
    assert_eq!(state.device_room(2 * PAGE_BYTES), None);
}

#[test]
fn churn_beside_a_standing_placement_touches_no_slot() {
    let (aperture, fake) = aperture(GIB);
    let _stays = aperture
        .place(&memory(64 * MIB), 0, 64 * MIB, Access::ReadWrite)
        .unwrap();
    let churned = memory(4 * MIB);
    let first = aperture
        .place(&churned, 0, 4 * MIB, Access::ReadWrite)
        .unwrap();
    aperture.remove(first).unwrap();
    let calls = fake.state().calls.len();
    for _ in 0..100 {
        let at = aperture
            .place(&churned, 0, 4 * MIB, Access::ReadWrite)
            .unwrap();
        assert_eq!(at, first);
        aperture.remove(at).unwrap();
    }
    assert_eq!(fake.state().calls.len(), calls);
}

#[test]
fn what_cannot_be_placed_changes_nothing() {
    let (aperture, fake) = aperture(GIB);
    let small = memory(PAGE_BYTES);
    for (offset, bytes) in [
        (0, 0),
        (0, 2 * PAGE_BYTES),
        (1, PAGE_BYTES),
        (0, 1),
        (100, 100),
        (u64::MAX, PAGE_BYTES),
    ] {
        let refused = aperture.place(&small, offset, bytes, Access::Read);
        assert!(
            matches!(refused, Err(PlaceError::Map { .. })),
            "{offset:#x}+{bytes:#x}"
        );
    }
    fake.fail_after(0, libc::ENOMEM);
    let refused = aperture.place(&small, 0, PAGE_BYTES, Access::Read);
    assert!(matches!(refused, Err(PlaceError::Slot { .. })));
    assert_eq!(aperture.usage().placements, 0);
    let huge = memory(2 * GIB);
    let refused = aperture.place(&huge, 0, 2 * GIB, Access::None);
    assert!(matches!(refused, Err(PlaceError::Full { bytes }) if bytes == 2 * GIB));
    aperture.place(&huge, 0, GIB, Access::None).unwrap();
}

#[test]
fn what_is_mapped_ahead_was_placed_with_rights_and_is_still_there() {
    let (aperture, _) = aperture(GIB);
    let page = memory(PAGE_BYTES);
    let place = |access| aperture.place(&page, 0, PAGE_BYTES, access).unwrap();
    let (stays, _unreachable) = (place(Access::Read), place(Access::None));
    aperture.remove(place(Access::ReadWrite)).unwrap();
    let fresh = &aperture.state.lock().fresh;
    let bounds: Vec<(u64, u64)> = fresh.iter().map(|range| (range.start, range.end)).collect();
    assert_eq!(bounds, [(stays, stays + PAGE_BYTES)]);
}

#[test]
fn the_address_of_the_aperture_is_the_one_that_the_guest_chose_last() {
    let (aperture, _) = aperture(GIB);
    assert_eq!(aperture.base(), Some(BASE));
    aperture.relocate(None).unwrap();
    assert_eq!(aperture.base(), None);
    aperture.relocate(Some(2 * BASE)).unwrap();
    assert_eq!(aperture.base(), Some(2 * BASE));
}

#[test]
fn placements_are_bounded_in_number() {
    let (aperture, _) = aperture(GIB);
    let page = memory(PAGE_BYTES);
    let place = || aperture.place(&page, 0, PAGE_BYTES, Access::None);
    let all: Vec<u64> = (0..PLACEMENTS_MAX).map(|_| place().unwrap()).collect();
    assert!(matches!(place(), Err(PlaceError::Full { .. })));
    aperture.remove(all[17]).unwrap();
    assert_eq!(place().unwrap(), all[17]);
}

#[test]
fn no_number_of_guests_uses_up_the_mappings_of_the_process() {
    const GUESTS: u32 = 9;
    let page = memory(PAGE_BYTES);
    let apertures: Vec<_> = (0..GUESTS)
        .map(|_| aperture(GIB).0.shared_among(GUESTS))
        .collect();
    for aperture in &apertures {
        let refusal = loop {
            match aperture.place(&page, 0, PAGE_BYTES, Access::Read) {
                Ok(_) => {}
                Err(e) => break e,
            }
        };
        // Not that of the kernel, which every other mapping would get then too.
        assert!(matches!(refusal, PlaceError::Full { .. }), "{refusal:?}");
        assert!(aperture.usage().placements > 1024);
    }
}

#[test]
fn the_object_behind_an_address_is_found() {
    let (aperture, _) = aperture(GIB);
    let memory = memory(4 * PAGE_BYTES);
    let at = aperture
        .place(&memory, PAGE_BYTES, 2 * PAGE_BYTES, Access::Read)
        .unwrap();
    let found = aperture.object(at + 64, 128).unwrap();
    assert!(Arc::ptr_eq(&found.memory, memory.host().unwrap().0));
    assert_eq!(
        (found.offset, found.access),
        (PAGE_BYTES + 64, Access::Read)
    );
    assert!(aperture.object(at, 3 * PAGE_BYTES).is_none());
    assert!(aperture.object(at, u64::MAX).is_none());
}

#[test]
fn a_lease_ends_with_the_rights_it_was_given_for() {
    let (aperture, _) = aperture(GIB);
    let at = aperture
        .place(&memory(PAGE_BYTES), 0, PAGE_BYTES, Access::ReadWrite)
        .unwrap();
    let lease = |offset| aperture.object(offset, 8).unwrap().lease;
    let first = lease(at);
    assert_eq!(first.during(|| 1), Some(1));
    aperture.set_access(at, Access::Read).unwrap();
    assert_eq!(first.during(|| 1), None);
    let second = lease(at);
    assert_eq!(second.during(|| 2), Some(2));
    aperture.remove(at).unwrap();
    assert_eq!(second.during(|| 2), None);
}

#[test]
fn removal_waits_for_a_use_under_way() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (aperture, _) = aperture(GIB);
    let at = aperture
        .place(&memory(PAGE_BYTES), 0, PAGE_BYTES, Access::ReadWrite)
        .unwrap();
    let lease = aperture.object(at, 8).unwrap().lease;
    let (in_use, begun) = (AtomicBool::new(false), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            lease.during(|| {
                in_use.store(true, Ordering::SeqCst);
                begun.wait();
                std::thread::sleep(std::time::Duration::from_millis(50));
                in_use.store(false, Ordering::SeqCst);
            })
        });
        begun.wait();
        aperture.remove(at).unwrap();
        assert!(!in_use.load(Ordering::SeqCst));
    });
}

#[test]
fn what_is_used_is_known_without_asking_for_the_placements() {
    let (aperture, fake) = aperture(GIB);
    let used = |aperture: &Aperture| {
        let usage = aperture.usage();
        assert_eq!(usage.bytes, GIB);
        (usage.used_bytes, usage.placements)
    };
    let memory = memory(3 * MIB);
    let place = |bytes| aperture.place(&memory, 0, bytes, Access::ReadWrite);
    let (one, other) = (place(MIB).unwrap(), place(3 * MIB).unwrap());
    assert_eq!(used(&aperture), (4 * MIB, 2));
    aperture.set_access(one, Access::None).unwrap();
    assert_eq!(used(&aperture), (4 * MIB, 2), "the place is still taken");
    assert!(place(0).is_err());
    // It needs another slot, which is refused.
    fake.fail_after(0, libc::ENOMEM);
    let large = self::memory(GIB / 2);
    let refused = aperture.place(&large, 0, GIB / 2, Access::ReadWrite);
    assert!(matches!(refused, Err(PlaceError::Slot { .. })));
    assert_eq!(used(&aperture), (4 * MIB, 2));
    aperture.remove(other).unwrap();
    assert!(aperture.remove(other).is_err());
    assert_eq!(used(&aperture), (MIB, 1));
}
