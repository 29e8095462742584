//! BARs: where they are, and how they are reached.

use causeway_host_vfio::{Area, InterruptKind, RegionIndex};

use super::rig::*;
use crate::bus::Refusal;
use crate::passthrough::PassThroughError;

/// Somewhere below 4 GiB where nothing is.
const ELSEWHERE: u64 = 0xf000_0000;

fn bar0(base: u64) -> (u64, u64) {
    (base, BAR0_BYTES)
}

#[test]
fn bars_are_sized_as_ever_and_ports_and_rom_are_not_there() {
    let rig = Rig::new();
    for offset in (0x10..0x28).step_by(4).chain([0x30]) {
        rig.store(offset, &[0xff; 4]);
    }
    let sizes = [0x10, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x30].map(|at| rig.config32(at));
    let expected = [0xfff0_0000, 0, 0xffff_000c, 0xffff_ffff, 0, 0xffff_ff00, 0];
    assert_eq!(sizes, expected);
    assert_eq!(rig.own(0x10), [0; 4], "the device's own are the host's");
}

#[test]
fn mapped_parts_are_slots_that_follow_the_bar() {
    let rig = Rig::new();
    let (zero, two) = (rig.bar(0), rig.bar(2));
    assert!(two >= 5 << 30 && zero < 1 << 32, "{zero:#x} {two:#x}");
    let standing = |zero: Option<u64>, two: Option<u64>| {
        let mut slots: Vec<_> = zero.map(bar0).into_iter().collect();
        slots.extend(two.into_iter().flat_map(bar2_slots));
        slots.sort_unstable();
        slots
    };
    assert_eq!(rig.slots(), standing(Some(zero), Some(two)));
    let before = rig.hypervisor.state().calls.len();
    rig.store(4, &[6, 0]);
    rig.store(0x10, &(zero as u32).to_le_bytes());
    assert_eq!(
        rig.hypervisor.state().calls.len(),
        before,
        "nothing has moved"
    );
    rig.store(0x10, &(ELSEWHERE as u32).to_le_bytes());
    assert_eq!(rig.slots(), standing(Some(ELSEWHERE), Some(two)));
    rig.store(4, &[0, 0]);
    assert_eq!(rig.slots(), []);
    rig.store(0x1c, &1_u32.to_le_bytes());
    rig.store(0x18, &0x1000_0000_u32.to_le_bytes());
    rig.store(4, &[2, 0]);
    assert_eq!(rig.slots(), standing(Some(ELSEWHERE), Some(0x1_1000_0000)));
}

#[test]
fn a_bar_on_top_of_something_else_is_not_decoded() {
    let rig = Rig::new();
    let (zero, two) = (rig.bar(0), rig.bar(2));
    // RAM; another BAR; beyond all addresses.
    rig.store(0x10, &0x10_0000_u32.to_le_bytes());
    assert_eq!(rig.slots(), bar2_slots(two));
    rig.store(0x1c, &[0; 4]);
    rig.store(0x18, &(zero as u32).to_le_bytes());
    assert_eq!(rig.slots(), bar2_slots(zero));
    rig.store(0x10, &(zero as u32).to_le_bytes());
    assert_eq!(rig.slots(), bar2_slots(zero), "whoever was there first");
    rig.store(0x1c, &0x100_u32.to_le_bytes());
    assert_eq!(rig.slots(), [bar0(zero)]);
}

#[test]
fn what_is_no_slot_is_an_access_to_the_device() {
    let rig = Rig::new();
    let five = rig.bar(5);
    let region = RegionIndex::Bar(5);
    rig.fake.poke(region, 8, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let (bytes, hit) = rig.load::<8>(five + 8);
    assert_eq!(
        (bytes, hit.device, hit.register),
        ([1, 2, 3, 4, 5, 6, 7, 8], "vfio0", "bar5")
    );
    assert_eq!(rig.put(five + 0xfe, &[9, 9]).result, Ok(()));
    let mut stored = [0; 2];
    rig.fake.peek(region, 0xfe, &mut stored).unwrap();
    assert_eq!(stored, [9, 9]);
    assert_eq!(
        rig.put(five + 0xff, &[1, 1]).result,
        Err(Refusal::CrossesEdge)
    );
    // Pages of the table, next to it, and pages that are slots most of the time.
    let two = rig.bar(2);
    for offset in [TABLE + 0x800, PENDING + 8, 0] {
        assert_eq!(rig.put(two + offset, &[7; 4]).result, Ok(()), "{offset:#x}");
        let mut stored = [0; 4];
        rig.fake
            .peek(RegionIndex::Bar(2), offset, &mut stored)
            .unwrap();
        assert_eq!(stored, [7; 4], "{offset:#x}");
    }
}

#[test]
fn the_table_is_emulated_and_the_devices_own_untouched() {
    let rig = Rig::new();
    let table = rig.bar(2) + TABLE;
    assert_eq!(
        rig.put(table, &0xfee0_0000_u64.to_le_bytes()).result,
        Ok(())
    );
    let (bytes, hit) = rig.load::<8>(table);
    assert_eq!(
        (u64::from_le_bytes(bytes), hit.register),
        (0xfee0_0000, "msix_table")
    );
    let mut own = [0; 16];
    rig.fake.peek(RegionIndex::Bar(2), TABLE, &mut own).unwrap();
    assert_eq!(own, [0; 16]);
    let end = u64::from(VECTORS) * 16;
    for (offset, bytes) in [(end - 4, 8), (end - 2, 4), (0x21, 4), (0x20, 2)] {
        let hit = rig.put(table + offset, &vec![0xff; bytes]);
        assert!(hit.result.is_err(), "{offset:#x}");
    }
    let pending = rig.bar(2) + PENDING;
    assert_eq!(rig.put(pending, &[0xff; 8]).result, Err(Refusal::ReadOnly));
    assert_eq!(rig.load::<8>(pending).0, [0; 8]);
}

#[test]
fn a_device_that_does_not_answer_reads_ones_and_is_counted() {
    let hardware = hardware().with_change(RegionIndex::Bar(5), |region| region.readable = false);
    let mut rig = Rig::with(hardware).unwrap();
    let (bytes, hit) = rig.load::<4>(rig.bar(5));
    assert_eq!((bytes, hit.result), ([0xff; 4], Err(Refusal::Device)));
    rig.passed.release();
    let [report] = rig.passed.reports() else {
        panic!("one device")
    };
    assert_eq!((report.failures, report.trapped_reads), (1, 1));
}

#[test]
fn read_only_and_sparse_regions_have_slots_that_say_so() {
    let areas = [(0, 0x1000), (0x8000, 0x1000)].map(|(offset, bytes)| Area { offset, bytes });
    let hardware = hardware().with_change(RegionIndex::Bar(0), |region| {
        region.mappable = areas.to_vec();
        region.writable = false;
    });
    let rig = Rig::with(hardware).unwrap();
    let base = rig.bar(0);
    let state = rig.hypervisor.state();
    let slots = state.slots.values().filter(|slot| slot.read_only);
    let places: Vec<_> = slots.map(|slot| (slot.gpa - base, slot.bytes)).collect();
    assert_eq!(places, [(0, 0x1000), (0x8000, 0x1000)]);
}

#[test]
fn a_bar_without_a_place_is_named_with_its_size() {
    let hardware = hardware()
        .with_region(RegionIndex::Bar(1), 1 << 30)
        .unwrap();
    let error = Rig::with(hardware).err().expect("refused");
    assert!(matches!(error, PassThroughError::Room { bar: 1, .. }));
    assert!(error.to_string().contains("1073741824 bytes"), "{error}");
}

#[test]
fn a_device_without_interrupts_or_capabilities_is_passed_through_too() {
    let fake = causeway_host_vfio::fake::FakeHardware::new().unwrap();
    let fake = fake.with_region(RegionIndex::Bar(0), 4096).unwrap();
    let rig = Rig::with(fake).unwrap();
    assert_eq!(
        (rig.config::<1>(0x34), rig.config32(4) >> 16 & 0x10),
        ([0], 0)
    );
    assert_eq!(rig.config(0x3c), [0xff, 0]);
    assert_eq!(rig.slots(), [(rig.bar(0), 4096)]);
    assert!(rig.fake.vectors(InterruptKind::Intx).is_empty());
}
