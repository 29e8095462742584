//! Tests CPU-visible memory of the device with one guest.

use causeway_bare::{PciTransport, Phase, Totals};
use causeway_guests::{Required, touch};
use causeway_protocol::registers::Register;
use causeway_shim::{Access, Buffer, MemoryKind, PAGE_BYTES, Patience, Transport};
use causeway_testdev_records::PhasePath;

use crate::{BYTES, Guest, store, verify};

/// Number of rounds with fences.
const FENCES: u64 = 200;

pub fn run(guest: &mut Guest<'_>, transport: &PciTransport) {
    let kind = MemoryKind::DeviceVisible;
    let memory = Buffer::new(guest.device, guest.space, BYTES, kind);
    let memory = memory.required("memory of the device that CPUs see");
    // The first access, so that no phase has the page fault.
    touch::pages(memory.cpu.window());
    let window = *memory.cpu.window();
    guest.phase(
        "stores, a kernel, loads",
        memory.gpu.address(),
        || store(&window, 1),
        || verify(&window, 1, 1),
    );
    fences(guest, &memory);
    parts(&memory);
    read_only(transport, &memory);
    let again = window.load_u32(0).required("a word");
    memory.free().required("freeing");
    let before = transport.read_register(Register::StrayCount);
    assert_eq!(window.load_u32(0), Ok(u32::MAX), "was {again:#x}: not gone");
    let after = transport.read_register(Register::StrayCount);
    assert_eq!(after - before, 1, "a load from where it was");
}

/// Makes the device release one fence and wait for another, both in CPU-visible device memory.
fn fences<'d>(guest: &mut Guest<'d>, memory: &Buffer<'d>) {
    let released = memory.fence(0).required("a fence");
    let acquired = memory.fence(PAGE_BYTES).required("a fence");
    released.store(0);
    acquired.store(0);
    // All packets are written before the phase: a consumer without work would have to be woken.
    guest.pipeline.arm();
    let commands = &mut guest.pipeline.commands;
    for value in 1..=FENCES {
        let packets = commands.acquire(&acquired, value);
        packets.required("waiting for the guest");
        commands.release(&released, value).required("an answer");
    }
    commands.submit();
    let phase = Phase::begin(PhasePath::Data, "fences to and fro");
    guest.pipeline.open();
    for value in 1..=FENCES {
        acquired.store(value);
        let waited = released.wait(value, Patience::SPIN);
        waited.required("the device's answer");
    }
    phase.end(Totals {
        operations: FENCES,
        bytes: 16 * FENCES,
        doorbells: 0,
    });
    guest.pipeline.drain();
}

/// Maps parts of an allocation at chosen places, several times, and ends the mappings one by one.
fn parts(memory: &Buffer<'_>) {
    store(memory.cpu.window(), 2);
    let allocation = &memory.allocation;
    let map = |offset, bytes| {
        let part = allocation.map_cpu(offset, bytes, Access::ReadWrite);
        part.required("a part")
    };
    let (part, other) = (
        map(3 * PAGE_BYTES, 2 * PAGE_BYTES),
        map(4 * PAGE_BYTES, PAGE_BYTES),
    );
    let at = |offset: u64| memory.cpu.load_u32(offset as usize).required("a word");
    assert_eq!(part.load_u32(0), Ok(at(3 * PAGE_BYTES)));
    part.store_u32(PAGE_BYTES as usize + 8, 77)
        .required("a word");
    assert_eq!(other.load_u32(8), Ok(77));
    assert_eq!(at(4 * PAGE_BYTES + 8), 77);
    part.unmap().required("unmapping");
    assert_eq!(other.load_u32(8), Ok(77));
    other.unmap().required("unmapping");
}

/// Checks that a store to a read-only mapping changes nothing and is counted.
fn read_only(transport: &PciTransport, memory: &Buffer<'_>) {
    store(memory.cpu.window(), 3);
    let mapping = memory.allocation.map_cpu(0, BYTES, Access::Read);
    let mapping = mapping.required("mapping for loads");
    verify(mapping.window(), 3, 0);
    let before = transport.read_register(Register::StrayCount);
    mapping
        .store_u32(16, 0x0bad_0bad)
        .required("an offset inside");
    let after = transport.read_register(Register::StrayCount);
    assert_eq!(after - before, 1, "a forbidden store");
    verify(mapping.window(), 3, 0);
    verify(memory.cpu.window(), 3, 0);
    mapping.unmap().required("unmapping");
}
