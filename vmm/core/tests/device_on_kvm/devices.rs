//! Memory of a device in the aperture: a fake one, and one imported through Vulkan.

use std::sync::Arc;

use causeway_mediator_testing::FakeDeviceMemory;
use causeway_memory::{Backing, PageSize};
use causeway_protocol::Access;
use causeway_vmm::bus::StrayCounts;
use causeway_vulkan_import::VulkanDevice;

use crate::exporter::{BYTES, Exporter};
use crate::guest;
use crate::machine::{APERTURE, MIB, Machine, RESULTS, machine, object, set_registers};

const PAGE: u64 = 4096;

/// The first Vulkan device whose memory CPUs can see, and someone who exports some of it. None,
/// with the reason, if there is none; where `CAUSEWAY_REQUIRE_VULKAN` is set, that is a failure.
fn vulkan() -> Option<(Exporter, Backing)> {
    let report = causeway_vulkan_import::report();
    let found = report.as_ref().ok().and_then(|report| {
        let mut devices = report.devices.iter();
        devices.find(|device| device.visible_bytes.is_ok())
    });
    let Some(found) = found else {
        let required = std::env::var_os("CAUSEWAY_REQUIRE_VULKAN").is_some();
        assert!(!required, "Vulkan is required here: {report:?}");
        eprintln!("skipped: no Vulkan device with visible memory ({report:?})");
        return None;
    };
    let exporter = Exporter::new(found.uuid);
    let device = VulkanDevice::open(found.uuid).unwrap();
    let memory = device.import(exporter.export(), BYTES).unwrap();
    Some((exporter, Backing::Device(memory)))
}

/// Good, refused and stray accesses of a guest to two pages of device memory, whose first words
/// hold 0x21 in each byte, and 0.
fn touch(machine: &mut Machine, backing: &Backing) {
    let place = |page, access| {
        let placed = machine.aperture.place(backing, page * PAGE, PAGE, access);
        placed.unwrap()
    };
    // One below the other, so what is above the first is a hole.
    let hole = place(0, Access::None);
    let writable = place(1, Access::ReadWrite);
    let read_only = place(0, Access::Read);
    assert_eq!(hole, writable + PAGE);
    let registers = [hole, read_only, writable].map(|offset| APERTURE + offset);
    set_registers(&machine.vcpus[0], registers, RESULTS, 0);
    let counts = machine.run().unwrap();
    let results: [u64; 6] = std::array::from_fn(|i| machine.result(i as u64));
    let [first, before, after, split, moved, good] = results;
    assert_eq!(
        (first, moved),
        (u64::MAX, u64::MAX),
        "a hole reads all-ones"
    );
    assert_eq!(
        [before, after],
        [0x2121_2121; 2],
        "a refused store changes nothing"
    );
    assert_eq!(
        split, 0xffff_ffff_1122_3344,
        "a load that is half in a hole"
    );
    assert_eq!(good, 0x1122_3344_5566_7788);
    let wanted = StrayCounts {
        hole_reads: 3,
        hole_writes: 1,
        refused_writes: 1,
        ..StrayCounts::default()
    };
    assert_eq!(machine.strays.counts(), wanted);
    assert_eq!(
        counts.resolved, 0,
        "no slot stands over a hole: an exit says where it was"
    );
    for offset in [hole, writable, read_only] {
        machine.aperture.remove(offset).unwrap();
    }
}

/// What a guest reads where device memory was.
fn read_at(machine: &mut Machine, offset: u64) -> u64 {
    set_registers(&machine.vcpus[0], [APERTURE + offset, 0, 0], RESULTS, 1);
    machine.run().unwrap();
    machine.result(0)
}

#[test]
fn a_guest_reaches_device_memory_within_its_rights() {
    let Some(mut machine) = machine(&[guest::strays()]) else {
        return;
    };
    let memory = FakeDeviceMemory::new(2 * PAGE).unwrap();
    let own = memory.object().map(0, 2 * PAGE, Access::ReadWrite).unwrap();
    own.write(0, &[0x21; 4]).unwrap();
    touch(&mut machine, &Backing::Device(memory.clone()));
    let mut word = [0; 8];
    own.read(PAGE, &mut word).unwrap();
    assert_eq!(u64::from_le_bytes(word), 0x1122_3344_5566_7788);
    assert_eq!(memory.mappings(), 0);
}

#[test]
fn a_guest_reaches_memory_that_vulkan_imported() {
    let Some(mut machine) = machine(&[guest::strays()]) else {
        return;
    };
    let Some((exporter, backing)) = vulkan() else {
        return;
    };
    exporter
        .word(0)
        .store(0x2121_2121, std::sync::atomic::Ordering::Relaxed);
    touch(&mut machine, &backing);
    assert_eq!(exporter.load(PAGE), 0x1122_3344_5566_7788);
    assert_eq!(exporter.load(0), 0x2121_2121);
}

#[test]
fn stores_to_device_memory_cost_no_exit_and_removal_leaves_a_hole() {
    let Some((exporter, backing)) = vulkan() else {
        return;
    };
    let (stores, place) = (100_000, |machine: &Machine| {
        let placed = machine
            .aperture
            .place(&backing, PAGE, PAGE, Access::ReadWrite);
        placed.unwrap()
    });
    let Some(mut worker) = machine(&[guest::worker()]) else {
        return;
    };
    let at = place(&worker);
    set_registers(&worker.vcpus[0], [0, 0, APERTURE + at], RESULTS, stores);
    let counts = worker.run().unwrap();
    assert_eq!((counts.mmio, counts.resolved), (0, 0));
    assert_eq!(worker.result(0), 0, "every store was found again");
    assert_eq!(exporter.load(PAGE), stores & !511);
    let Some(mut prober) = machine(&[guest::prober()]) else {
        return;
    };
    let at = place(&prober);
    assert_eq!(read_at(&mut prober, at), stores & !511);
    prober.aperture.remove(at).unwrap();
    let entry = causeway_vmm::boot::registers(MIB, 0);
    prober.vcpus[0].set_regs(&entry).unwrap();
    assert_eq!(read_at(&mut prober, at), u64::MAX);
}

#[test]
fn a_stray_access_elsewhere_leaves_device_memory_where_it_is() {
    let Some(mut machine) = machine(&[guest::prober()]) else {
        return;
    };
    let memory = FakeDeviceMemory::new(PAGE).unwrap();
    let backing = Backing::Device(Arc::clone(&memory) as _);
    memory
        .object()
        .map(0, PAGE, Access::ReadWrite)
        .unwrap()
        .write(0, &[7])
        .unwrap();
    let at = machine
        .aperture
        .place(&backing, 0, PAGE, Access::Read)
        .unwrap();
    // A hole under a slot of the window.
    let (object, _own) = object(PAGE, PageSize::Small);
    let host = machine
        .aperture
        .place(&object, 0, PAGE, Access::Read)
        .unwrap();
    set_registers(
        &machine.vcpus[0],
        [APERTURE + host - PAGE, 0, 0],
        RESULTS,
        3,
    );
    assert_eq!(machine.run().unwrap().resolved, 3);
    let entry = causeway_vmm::boot::registers(MIB, 0);
    machine.vcpus[0].set_regs(&entry).unwrap();
    assert_eq!(read_at(&mut machine, at), 7);
}
