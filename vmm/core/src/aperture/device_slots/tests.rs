//! Device memory in the aperture, over a fake hypervisor and a fake device.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use causeway_mediator::host::PlaceError;
use causeway_mediator_testing::FakeDeviceMemory;
use causeway_memory::{Backing, Mapping, PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::Access;
use kvm_ioctls::VcpuExit;
use vmm_sys_util::errno;

use super::super::{Aperture, FaultOutcome, Processor};
use super::*;
use crate::bus::{BusDevice, Refusal};
use crate::hypervisor::fake::{Call, Fake};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const BASE: u64 = 256 * GIB;

struct Rig {
    aperture: Aperture,
    fake: Arc<Fake>,
    memory: Arc<FakeDeviceMemory>,
    backing: Backing,
    device: Mapping,
}

fn rig() -> Rig {
    let fake = Arc::new(Fake::default());
    let aperture = Aperture::new(GIB, Arc::clone(&fake) as _).unwrap();
    aperture.relocate(Some(BASE)).unwrap();
    let memory = FakeDeviceMemory::new(4 * PAGE_BYTES).unwrap();
    let object = memory.object();
    let device = object.map(0, 4 * PAGE_BYTES, Access::ReadWrite).unwrap();
    Rig {
        aperture,
        fake,
        backing: Backing::Device(memory.clone()),
        memory,
        device,
    }
}

impl Rig {
    fn place(&self, page: u64, access: Access) -> u64 {
        self.aperture
            .place(&self.backing, page * PAGE_BYTES, PAGE_BYTES, access)
            .unwrap()
    }

    /// Returns the slot at an aperture offset.
    fn slot(&self, offset: u64) -> Option<Slot> {
        let state = self.fake.state();
        let mut slots = state.slots.values();
        slots.find(|slot| slot.gpa == BASE + offset).copied()
    }

    fn read(&self, offset: u64) -> Result<u8, Refusal> {
        let mut byte = [0];
        self.aperture.read(offset, &mut byte).result?;
        Ok(byte[0])
    }

    fn write(&self, offset: u64, byte: u8) -> Result<(), Refusal> {
        self.aperture.write(offset, &[byte]).result
    }
}

#[test]
fn each_placement_has_a_slot_over_its_part_of_the_memory() {
    let rig = rig();
    rig.device.write(2 * PAGE_BYTES, b"x").unwrap();
    let (first, second) = (rig.place(2, Access::ReadWrite), rig.place(2, Access::Read));
    assert_eq!(rig.memory.mappings(), 2);
    let (slot, other) = (rig.slot(first).unwrap(), rig.slot(second).unwrap());
    assert_eq!((slot.bytes, slot.read_only), (PAGE_BYTES, false));
    assert!(other.read_only && other.number != slot.number && other.host != slot.host);
    // SAFETY: the placement is live, and read by one volatile load.
    #[allow(unsafe_code)]
    let byte = unsafe { (slot.host as *const u8).read_volatile() };
    assert_eq!(byte, b'x');
    rig.aperture.remove(first).unwrap();
    assert!(rig.slot(first).is_none() && rig.slot(second).is_some());
    assert_eq!(rig.memory.mappings(), 1);
    drop(rig.aperture);
    assert!(rig.fake.state().slots.is_empty());
    assert_eq!(rig.memory.mappings(), 0);
}

#[test]
fn accesses_while_the_slots_are_down_reach_the_memory() {
    let rig = rig();
    let (both, only) = (rig.place(1, Access::ReadWrite), rig.place(1, Access::Read));
    assert_eq!(rig.write(both + 9, 7), Ok(()));
    let mut byte = [0];
    rig.device.read(PAGE_BYTES + 9, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    assert_eq!((rig.read(both + 9), rig.read(only + 9)), (Ok(7), Ok(7)));
    let state = rig.aperture.state.lock();
    let address = |within| state.slots.devices().address(both, within);
    assert!(address(PAGE_BYTES - 1).is_some() && address(PAGE_BYTES).is_none());
    drop(state);
    assert_eq!(rig.write(only, 1), Err(Refusal::WriteForbidden));
    assert_eq!(rig.read(both + PAGE_BYTES), Err(Refusal::Hole));
    rig.aperture.remove(both).unwrap();
    assert_eq!(rig.read(both + 9), Err(Refusal::Hole));
}

#[test]
fn rights_are_changed_taken_and_given_back() {
    let rig = rig();
    let at = rig.place(0, Access::None);
    assert_eq!(rig.memory.mappings(), 0);
    for (access, read_only) in [
        (Access::Read, Some(true)),
        (Access::ReadWrite, Some(false)),
        (Access::None, None),
        (Access::ReadWrite, Some(false)),
    ] {
        rig.aperture.set_access(at, access).unwrap();
        assert_eq!(rig.slot(at).map(|slot| slot.read_only), read_only);
        assert_eq!(rig.memory.mappings(), usize::from(read_only.is_some()));
    }
    assert!(rig.aperture.object(at, 8).is_none(), "no object behind it");
}

#[test]
fn device_memory_and_slots_of_the_window_never_meet() {
    let rig = rig();
    let object = SharedMemory::new("test", GIB, PageSize::Small).unwrap();
    let object = Backing::from(Arc::new(object));
    let small = rig.aperture.place(&object, 0, PAGE_BYTES, Access::Read);
    let at = rig.place(0, Access::Read);
    let large = rig.aperture.place(&object, 0, 256 * MIB, Access::Read);
    // The fake, as KVM, refuses slots that overlap.
    assert_eq!(rig.fake.state().slots.len(), 3);
    assert!(small.unwrap() / (256 * MIB) != at / (256 * MIB));
    assert!(large.unwrap() / (256 * MIB) != at / (256 * MIB));
    // What was host memory's stays so, and what is the devices' too.
    rig.aperture.remove(at).unwrap();
    let calls = rig.fake.state().calls.len();
    assert_eq!(rig.place(0, Access::Read), at);
    let last = rig.fake.state().calls[calls..].to_vec();
    assert!(matches!(last[..], [Call::Set(_)]), "{last:?}");
}

#[test]
fn relocation_and_suspension_take_all_slots() {
    let rig = rig();
    let at = rig.place(0, Access::ReadWrite);
    rig.aperture.relocate(None).unwrap();
    assert!(rig.fake.state().slots.is_empty());
    let unseen = rig.place(1, Access::ReadWrite);
    assert!(rig.fake.state().slots.is_empty());
    rig.aperture.relocate(Some(BASE)).unwrap();
    assert!(rig.slot(at).is_some() && rig.slot(unseen).is_some());
    let outcome =
        rig.aperture.resolve(
            &mut Stray(&rig.fake, 0),
            |_| ControlFlow::<()>::Continue(()),
        );
    assert_eq!(outcome.unwrap(), FaultOutcome::Resolved);
    assert!(rig.slot(at).is_some() && rig.slot(unseen).is_some());
}

/// A vCPU whose stray access is one MMIO exit, if no slot stands.
struct Stray<'a>(&'a Fake, u32);

impl Processor for Stray<'_> {
    fn run(&mut self) -> Result<VcpuExit<'_>, errno::Error> {
        assert!(self.0.state().slots.is_empty());
        self.1 += 1;
        match self.1 {
            1 => Ok(VcpuExit::MmioWrite(BASE, &[0])),
            _ => Err(errno::Error::new(libc::EINTR)),
        }
    }
    fn set_immediate_exit(&mut self, _: bool) {}
    fn instruction_pointer(&self) -> u64 {
        0
    }
}

#[test]
fn what_cannot_be_placed_leaves_nothing_behind() {
    let rig = rig();
    let place = || {
        rig.aperture
            .place(&rig.backing, 0, PAGE_BYTES, Access::Read)
    };
    rig.fake.fail_after(0, libc::ENOMEM);
    assert!(matches!(place(), Err(PlaceError::Slot { .. })));
    rig.memory.limit_mappings(0);
    assert!(matches!(place(), Err(PlaceError::Map { .. })));
    rig.memory.limit_mappings(usize::MAX);
    for (from, bytes) in [(0, 5 * PAGE_BYTES), (1, PAGE_BYTES), (u64::MAX, PAGE_BYTES)] {
        let refused = rig.aperture.place(&rig.backing, from, bytes, Access::Read);
        assert!(matches!(refused, Err(PlaceError::Map { .. })));
    }
    assert_eq!(
        (rig.aperture.usage().placements, rig.memory.mappings()),
        (0, 0)
    );
    assert!(rig.fake.state().slots.is_empty());
    let at = rig.place(0, Access::Read);
    rig.memory.limit_mappings(0);
    rig.aperture.set_access(at, Access::ReadWrite).unwrap_err();
    assert_eq!(rig.read(at), Err(Refusal::Hole));
    rig.aperture.remove(at).unwrap();
}

#[test]
fn what_the_hypervisor_does_not_delete_stays_mapped() {
    let rig = rig();
    let at = rig.place(0, Access::Read);
    rig.fake.fail_after(0, libc::ENOMEM);
    rig.aperture.remove(at).unwrap_err();
    assert_eq!(
        (rig.memory.mappings(), rig.aperture.usage().placements),
        (1, 1)
    );
    rig.aperture.remove(at).unwrap();
    assert_eq!(rig.memory.mappings(), 0);
}

/// A driver may not come back.
#[test]
fn while_a_driver_maps_or_unmaps_the_aperture_can_be_used() {
    let rig = rig();
    let object = SharedMemory::new("test", PAGE_BYTES, PageSize::Small).unwrap();
    let object = Backing::from(Arc::new(object));
    let use_aperture = || {
        let at = rig
            .aperture
            .place(&object, 0, PAGE_BYTES, Access::Read)
            .unwrap();
        assert_eq!(rig.read(at), Ok(0));
        rig.aperture.remove(at).unwrap();
    };
    let held = |call: &(dyn Fn() + Sync)| {
        rig.memory.hold(true);
        std::thread::scope(|scope| {
            let begun = Instant::now();
            let may_wait = || begun.elapsed() < Duration::from_secs(20);
            let held = scope.spawn(call);
            while rig.memory.held() == 0 && may_wait() {
                std::thread::yield_now();
            }
            let is_held = rig.memory.held() != 0;
            let user = scope.spawn(use_aperture);
            while !user.is_finished() && may_wait() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let is_used = user.is_finished();
            // An aperture that is dropped would wait for the driver, too.
            rig.memory.hold(false);
            held.join().unwrap();
            assert!(is_held && is_used);
        });
    };
    let at = rig.place(0, Access::ReadWrite);
    held(&|| assert_ne!(rig.place(1, Access::Read), at));
    held(&|| rig.aperture.set_access(at, Access::Read).unwrap());
    held(&|| rig.aperture.set_access(at, Access::None).unwrap());
    held(&|| rig.aperture.set_access(at, Access::Read).unwrap());
    held(&|| rig.aperture.remove(at).unwrap());
}

#[test]
fn rights_are_not_changed_of_what_has_taken_the_place_meanwhile() {
    let rig = rig();
    let at = rig.place(0, Access::None);
    let newcomer = FakeDeviceMemory::new(PAGE_BYTES).unwrap();
    let newcomer = Backing::Device(newcomer);
    rig.memory.hold(true);
    std::thread::scope(|scope| {
        let change = scope.spawn(|| rig.aperture.set_access(at, Access::ReadWrite));
        while rig.memory.held() == 0 && !change.is_finished() {
            std::thread::yield_now();
        }
        let removed = rig.aperture.remove(at);
        let place = || rig.aperture.place(&newcomer, 0, PAGE_BYTES, Access::Read);
        let there = removed.and_then(|()| place());
        // An aperture that is dropped would wait for the driver, too.
        rig.memory.hold(false);
        assert_eq!(there.unwrap(), at);
        let changed = change.join().unwrap();
        assert!(
            matches!(changed, Err(PlaceError::Absent { .. })),
            "{changed:?}"
        );
    });
    assert_eq!(rig.read(at), Ok(0));
    assert_eq!(rig.write(at, 1), Err(Refusal::WriteForbidden));
}

#[test]
fn placements_are_bounded_in_number() {
    let rig = rig();
    let all: Vec<u64> = (0..DEVICE_PLACEMENTS_MAX)
        .map(|_| rig.place(0, Access::Read))
        .collect();
    let place = || {
        rig.aperture
            .place(&rig.backing, 0, PAGE_BYTES, Access::Read)
    };
    assert!(matches!(place(), Err(PlaceError::Full { .. })));
    let object = SharedMemory::new("test", PAGE_BYTES, PageSize::Small).unwrap();
    let object = Backing::from(Arc::new(object));
    rig.aperture
        .place(&object, 0, PAGE_BYTES, Access::Read)
        .unwrap();
    rig.aperture.remove(all[17]).unwrap();
    assert_eq!(place().unwrap(), all[17]);
}

#[test]
fn memory_that_was_placed_without_rights_gets_no_slot_beyond_the_last() {
    let rig = rig();
    let all: Vec<u64> = (0..=DEVICE_PLACEMENTS_MAX)
        .map(|_| rig.place(0, Access::None))
        .collect();
    let (last, others) = all.split_last().unwrap();
    for at in others {
        rig.aperture.set_access(*at, Access::Read).unwrap();
    }
    let refused = rig.aperture.set_access(*last, Access::Read);
    assert!(
        matches!(refused, Err(PlaceError::Slot { .. })),
        "{refused:?}"
    );
    assert!(rig.slot(*last).is_none());
    rig.aperture.remove(all[17]).unwrap();
    rig.aperture.set_access(*last, Access::Read).unwrap();
}
