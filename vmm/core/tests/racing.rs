//! A guest whose virtual CPUs get in each other's way at the device, as fast as they can.

mod support;

use std::time::{Duration, Instant};

use causeway_mediator_testing::Batch;
use causeway_protocol::Access;
use causeway_protocol::message::{
    Allocate, Hello, MapCpu, MemoryKind, Opcode, PREVIOUS, message_bytes,
};
use causeway_protocol::registers::Register;
use causeway_testdev_records::{Baseline, Loop, PORT_RECORD, RecordKind};
use causeway_vmm::outcome::VmResult;
use support::{Guest, SCRATCH, config, header, kvm, run_for, vm};
use zerocopy::IntoBytes;

/// Where firmware puts BAR 0 and BAR 2.
const REGISTERS: u64 = 0xe000_0000;
const APERTURE: u64 = 256 << 30;
/// Memory that comes and goes.
const BYTES: u64 = 1 << 20;

fn batch() -> Vec<u8> {
    let mut batch = Batch::new();
    let hello = Hello {
        major: 1,
        ..Hello::default()
    };
    let memory = Allocate {
        size: BYTES,
        kind: MemoryKind::Host as u32,
        flags: 0,
    };
    let map = |access, offset, length| MapCpu {
        allocation: PREVIOUS,
        access,
        offset,
        length,
    };
    batch
        .push(Opcode::Hello, &hello)
        .push(Opcode::Allocate, &memory)
        .push(Opcode::MapCpu, &map(Access::ReadWrite as u32, 0, BYTES));
    std::mem::take(batch.bytes_mut())
}

fn register(register: Register) -> u64 {
    REGISTERS + register as u64
}

/// Stores to BAR 2 of the function, device 1: `high` is the upper half of its address.
fn relocate(guest: Guest, high: u32) -> Guest {
    guest.out32(0xcf8, 0x8000_081c).out32(0xcfc, high)
}

#[test]
fn virtual_cpus_that_race_harm_nobody_and_can_be_ended() {
    let Some(kvm) = kvm() else { return };
    // What is smaller than 2 MiB is placed at the end of the aperture, of 1 GiB.
    let placed = APERTURE + (1 << 30) - BYTES;
    let batch = batch();
    let request = Baseline {
        header: header::<Baseline>(RecordKind::Baseline),
        kind: Loop::Store as u32,
        passes: 4096,
        address: placed,
        bytes: BYTES,
        ticks: 0,
    };
    let (guest, batch_at) = Guest::new().data(&batch);
    let (guest, request_at) = guest.data(request.as_bytes());
    // A batch is overwritten with its replies, so each virtual CPU sends a copy.
    let send = |guest: Guest, skip: usize, copy: u64| {
        let bytes = (batch.len() - skip) as u32;
        guest
            .copy(batch_at + skip as u64, copy, bytes)
            .store32(register(Register::ControlBaseLow), copy as u32)
            .store32(register(Register::ControlDoorbell), bytes)
    };
    let hello_bytes = message_bytes(Opcode::Hello);
    let guest = guest
        .on_vcpu(0, |guest| relocate(relocate(guest, 0x50), 0x40))
        .on_vcpu(1, |guest| {
            // A hole under a standing slot, memory that may be there, and where the aperture may
            // be.
            let guest = guest.store32(placed - 8, 1).store32(placed, 2);
            guest.load32(placed - 4).load32(0x50 << 32)
        })
        .on_vcpu(2, |guest| {
            send(guest, 0, SCRATCH)
                .store32(
                    register(Register::Reset),
                    causeway_protocol::registers::RESET_KEY,
                )
                .store32(placed + 4092, 3)
        })
        .on_vcpu(3, |guest| {
            send(guest, hello_bytes, SCRATCH + 0x1000)
                .out32(PORT_RECORD, request_at as u32)
                .out32(PORT_RECORD, 0xffff_fff8)
                .out32(PORT_RECORD, (16 << 20) - 8)
        });
    let mut config = config(guest.image());
    config.vcpus = 4;
    let vm = vm(&kvm, &config).unwrap();
    let begin = Instant::now();
    let outcomes = run_for(vec![vm], Duration::from_secs(2));
    let outcome = &outcomes[0];
    assert_eq!(outcome.result, VmResult::Timeout, "{outcome:?}");
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    for key in [
        "io:pci:config_data",
        "mmio:registers:reset",
        "mmio:aperture:stray",
    ] {
        assert!(outcome.vmm_exits.contains_key(key), "{outcome:?}");
    }
}
