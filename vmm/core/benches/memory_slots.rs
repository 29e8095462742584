//! What it costs to bring memory into a guest and out again, and to find a device.
//! `docs/decisions/0002-aperture-slots.md` draws on this.
#![allow(unsafe_code)] // Adds memory slots to a VM that never runs.

use std::hint::black_box;
use std::sync::Arc;

use causeway_memory::{Backing, PageSize, SharedMemory, Window};
use causeway_protocol::Access;
use causeway_vmm::aperture::Aperture;
use causeway_vmm::bus::{BusDevice, GuestAddress, MmioBus, Response};
use causeway_vmm::hypervisor::{APERTURE_SLOT_FIRST, KvmHypervisor, MemorySlots, Slot};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const BASE: u64 = 256 * GIB;

fn hypervisor() -> Option<KvmHypervisor> {
    let vm = causeway_vmm::kvm::open().map(|kvm| kvm.create_vm());
    match vm {
        Ok(Ok(vm)) => Some(KvmHypervisor::new(Arc::new(vm))),
        Ok(Err(e)) => {
            eprintln!("skipped: no KVM: {e}");
            None
        }
        Err(e) => {
            eprintln!("skipped: no KVM: {e}");
            None
        }
    }
}

/// Adding and deleting a slot, by its size.
fn slots(c: &mut Criterion) {
    let Some(hypervisor) = hypervisor() else {
        return;
    };
    let mut group = c.benchmark_group("slot_add_delete");
    for mib in [64, 256, 1024] {
        let window = Window::reserve(mib * MIB).expect("addresses");
        let slot = Slot {
            number: APERTURE_SLOT_FIRST,
            gpa: BASE,
            host: window.as_ptr().as_ptr() as u64,
            bytes: mib * MIB,
            read_only: false,
        };
        group.bench_function(BenchmarkId::from_parameter(format!("{mib} MiB")), |b| {
            b.iter(|| {
                // SAFETY: the window outlives the slot, which the next line deletes; nothing refers
                // to its content.
                unsafe { hypervisor.set(slot) }.expect("slot");
                hypervisor.delete(slot.number).expect("slot");
            });
        });
    }
}

/// Placing and removing inside a standing slot.
fn placements(c: &mut Criterion) {
    let Some(hypervisor) = hypervisor() else {
        return;
    };
    let aperture = Aperture::new(GIB, Arc::new(hypervisor)).expect("addresses");
    aperture.relocate(Some(BASE)).expect("no slot stands yet");
    let mut group = c.benchmark_group("place_remove");
    for kib in [4, 64, 4096, 65536] {
        let bytes = kib * 1024;
        let memory = SharedMemory::new("bench", bytes, PageSize::Large).expect("memory");
        let mapping = memory.map(0, bytes, Access::ReadWrite).expect("addresses");
        mapping.populate().expect("memory");
        let memory = Backing::from(Arc::new(memory));
        group.bench_function(BenchmarkId::from_parameter(format!("{kib} KiB")), |b| {
            b.iter(|| {
                let at = aperture
                    .place(&memory, 0, bytes, Access::ReadWrite)
                    .expect("room");
                aperture.remove(at).expect("placed");
            });
        });
    }
}

struct Register;

impl BusDevice for Register {
    fn name(&self) -> &'static str {
        "register"
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        into.fill(offset as u8);
        Response::ok("register")
    }
    fn write(&self, _offset: u64, _from: &[u8]) -> Response {
        Response::ok("register")
    }
}

/// What the VMM adds to a register access, once KVM has brought it.
fn dispatch(c: &mut Criterion) {
    let bus = MmioBus::new(Arc::default());
    for n in 0..8 {
        let base = GuestAddress(0xe000_0000 + n * 0x1_0000);
        bus.insert(base, 0x1000, Arc::new(Register)).expect("free");
    }
    c.bench_function("mmio_load", |b| {
        let mut data = [0; 4];
        b.iter(|| bus.read(black_box(GuestAddress(0xe003_0010)), black_box(&mut data)));
    });
}

criterion_group!(benches, slots, placements, dispatch);
criterion_main!(benches);
