use causeway_bench_workloads::Kernel;
use causeway_bench_workloads::host_interface::{forward::pair, trap as wire};
use causeway_vmm::bus::{GuestAddress, Refusal};

use super::Machine;

impl Machine {
    fn packet(&self, words: &[u64]) {
        for (at, word) in (wire::REGISTERS + wire::PACKET..).step_by(8).zip(words) {
            assert!(self.store(at, *word).result.is_ok());
        }
        let kicked = self.store(wire::REGISTERS + wire::KICK, words.len() as u64);
        assert!(kicked.result.is_ok());
    }

    fn register(&self, register: u64) -> u64 {
        self.load(wire::REGISTERS + register).0
    }
}

#[test]
fn memory_is_where_the_device_says_and_gone_when_it_is_freed() {
    let machine = Machine::new();
    machine.packet(&[wire::ALLOCATE, 4096]);
    let offset = machine.register(wire::OFFSET);
    assert_ne!(offset, wire::FAILED);
    let at = wire::MEMORY + offset;
    assert!(machine.store(at + 8, 0x1122_3344).result.is_ok());
    let mut byte = [0];
    let hit = machine.mmio.read(GuestAddress(at + 9), &mut byte);
    assert!(hit.result.is_ok());
    assert_eq!(byte, [0x33]);
    assert_eq!(
        machine.load(at + 4096 - 4).1.result,
        Err(Refusal::Hole),
        "crosses the end"
    );
    machine.packet(&[wire::FREE, offset]);
    assert_eq!(machine.load(at).1.result, Err(Refusal::Hole));
    machine.packet(&[wire::FREE, offset]);
    assert_eq!(machine.register(wire::OFFSET), wire::FAILED);
}

#[test]
fn launches_are_counted_when_they_are_done() {
    let machine = Machine::new();
    let launch = wire::LAUNCH | (Kernel::Nothing as u64) << 32;
    for count in 1..=3 {
        machine.packet(&[launch, pair([1, 1]), pair([1, 1])]);
        while machine.register(wire::COMPLETED) != count {
            std::thread::yield_now();
        }
    }
}

#[test]
fn packets_and_accesses_that_make_no_sense_are_refused() {
    let machine = Machine::new();
    let launch = |kernel: u64| wire::LAUNCH | kernel << 32;
    let hostile: [&[u64]; 7] = [
        &[0, 0],
        &[wire::ALLOCATE],
        &[wire::ALLOCATE, u64::MAX],
        &[wire::ALLOCATE, wire::MEMORY_BYTES],
        &[wire::FREE, 12],
        &[launch(9), pair([1, 1]), pair([1, 1])],
        &[launch(1), pair([1, 1]), pair([1, 1]), 1],
    ];
    for packet in hostile {
        machine.packet(&[wire::ALLOCATE, 4096]);
        assert_ne!(machine.register(wire::OFFSET), wire::FAILED);
        machine.packet(packet);
        assert_eq!(machine.register(wire::OFFSET), wire::FAILED, "{packet:x?}");
    }
    // More words than there are.
    let _ = machine.store(wire::REGISTERS + wire::KICK, u64::MAX);
    assert_eq!(machine.register(wire::OFFSET), wire::FAILED);
    let narrow = machine.mmio.write(GuestAddress(wire::REGISTERS), &[1; 4]);
    assert_eq!(narrow.result, Err(Refusal::BadSize));
    for register in [0x84, 0x100, wire::REGISTERS_BYTES - 8] {
        let hit = machine.store(wire::REGISTERS + register, 1);
        assert_eq!(hit.result, Err(Refusal::NoRegister), "{register:#x}");
    }
}
