use std::time::{Duration, Instant};

use causeway_mediator::Quota;
use causeway_mediator_testing::{FakeDeviceMemory, FakeHost};
use causeway_memory::{PageSize, SharedMemory};
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::FromZeros;

use super::*;

struct Rig {
    guest: Guest,
    memory: Arc<FakeDeviceMemory>,
}

fn rig() -> Rig {
    let memory = FakeDeviceMemory::new(4 * PAGE_BYTES).unwrap();
    let imported = Arc::clone(&memory);
    let import: Arc<ImportDevice> = Arc::new(move |_, _, _| Ok(Arc::clone(&imported) as _));
    let host = FakeHost::new(1 << 20, 1 << 20).unwrap();
    let device = Some((import, DeviceUuid::default()));
    let exchange = (Arc::default(), 1);
    let limits = Arc::new(LiveLimits::new(&Quota::default()));
    Rig {
        guest: Guest::new(host, device, exchange, limits),
        memory,
    }
}

impl Rig {
    /// Returns the offset in the aperture; `None` if the guest refuses.
    fn place(&self, page: u64) -> Option<u64> {
        let mut request = Place::new_zeroed();
        request.kind = Placed::Device as u16;
        request.access = Access::ReadWrite.wire() as _;
        request.memory_bytes = 4 * PAGE_BYTES;
        request.offset = page * PAGE_BYTES;
        request.bytes = PAGE_BYTES;
        let file = self.memory.object().file().try_clone_to_owned().unwrap();
        let placed = self.guest.place(&request, file);
        placed.ok().map(|answer| answer.value)
    }

    fn remove(&self, offset: u64) {
        let mut request = Remove::new_zeroed();
        request.offset = offset;
        assert!(self.guest.remove(&request).is_ok());
    }

    /// Calls `call`, which waits in the driver, and `other` meanwhile, which must not wait.
    fn beside(&self, call: impl FnOnce() + Send, other: impl FnOnce() + Send) {
        self.memory.hold(true);
        std::thread::scope(|scope| {
            let call = scope.spawn(call);
            while self.memory.held() == 0 {
                std::thread::yield_now();
            }
            let (other, begun) = (scope.spawn(other), Instant::now());
            while !other.is_finished() && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let is_done = other.is_finished();
            self.memory.hold(false);
            call.join().unwrap();
            assert!(is_done);
        });
    }
}

#[test]
fn a_driver_that_maps_or_unmaps_holds_up_neither_the_worker_nor_its_end() {
    let rig = rig();
    rig.beside(
        || assert!(rig.place(0).is_some()),
        || assert!(!rig.guest.has_ended()),
    );
    assert_eq!(rig.memory.mappings(), 1);
    rig.beside(|| rig.remove(0), || rig.guest.mark_lost());
    assert_eq!(rig.memory.mappings(), 0);
    // Also what the driver returns too late.
    rig.beside(|| assert!(rig.place(1).is_none()), || rig.guest.end());
    assert_eq!(rig.memory.mappings(), 0);
}

#[test]
fn the_end_of_a_worker_unmaps_without_the_lock() {
    let rig = rig();
    rig.place(0).unwrap();
    rig.beside(|| rig.guest.end(), || assert!(rig.guest.has_ended()));
    assert_eq!(rig.memory.mappings(), 0);
}

#[test]
fn a_range_beyond_the_memory_does_not_reach_the_driver() {
    let rig = rig();
    rig.memory.limit_mappings(0);
    assert!(rig.place(4).is_none());
    rig.memory.limit_mappings(1);
    assert!(rig.place(3).is_some());
}

#[test]
fn only_whole_pages_of_an_object_are_placed() {
    let check = |offset, bytes| {
        let mut place = Place::new_zeroed();
        (place.offset, place.bytes) = (offset, bytes);
        check_pages(&place, 4 * PAGE_BYTES).is_ok()
    };
    for (offset, bytes) in [
        (0, PAGE_BYTES),
        (3 * PAGE_BYTES, PAGE_BYTES),
        (0, 4 * PAGE_BYTES),
    ] {
        assert!(check(offset, bytes), "{offset:#x}+{bytes:#x}");
    }
    for (offset, bytes) in [
        (0, 0),
        (0, 1),
        (1, PAGE_BYTES),
        (1, PAGE_BYTES - 1),
        (1, PAGE_BYTES + 1),
        (PAGE_BYTES, PAGE_BYTES + 8),
        (PAGE_BYTES, 4 * PAGE_BYTES),
        (4 * PAGE_BYTES, PAGE_BYTES),
        (u64::MAX - PAGE_BYTES + 1, PAGE_BYTES),
    ] {
        assert!(!check(offset, bytes), "{offset:#x}+{bytes:#x}");
    }
}

#[test]
fn the_loss_of_a_worker_stands_in_a_header_at_the_very_end_of_memory() {
    let rig = rig();
    let bytes = 2 * HEADER_BYTES;
    let memory = SharedMemory::new("ring", bytes, PageSize::Small).unwrap();
    for (index, ring_offset) in [HEADER_BYTES, bytes, u64::MAX].into_iter().enumerate() {
        let mut request = BindDoorbell::new_zeroed();
        request.index = index as u32;
        request.ring_offset = ring_offset;
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        let ring = memory.file().try_clone_to_owned().unwrap();
        assert!(rig.guest.bind_doorbell(&request, event, ring).is_ok());
    }
    rig.guest.mark_lost();
    let mapping = memory.map(0, bytes, Access::Read).unwrap();
    let word = |header| {
        let at = header + FAULT_STATUS as u64;
        mapping.load_u64(at, std::sync::atomic::Ordering::Relaxed)
    };
    assert_eq!(word(0), Ok(0));
    assert_eq!(word(HEADER_BYTES), Ok(Status::DeviceLost as u64));
}

#[test]
fn a_doorbell_is_bound_once_if_there_is_one_and_not_after_the_workers_end() {
    let rig = rig();
    let memory = SharedMemory::new("ring", PAGE_BYTES, PageSize::Small).unwrap();
    let bind = |index| {
        let mut request = BindDoorbell::new_zeroed();
        request.index = index;
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        let ring = memory.file().try_clone_to_owned().unwrap();
        let refused = rig.guest.bind_doorbell(&request, event, ring).err();
        refused.map(|Refused(answer)| answer.errno)
    };
    let errno = |error: Errno| Some(error.raw_os_error().unsigned_abs());
    assert_eq!(bind(COUNT), errno(Errno::INVAL));
    assert_eq!(bind(COUNT - 1), None);
    assert_eq!(bind(COUNT - 1), errno(Errno::BUSY));
    rig.guest.end();
    assert_eq!(bind(0), errno(Errno::BUSY));
}
