//! The whole function, used by a driver that keeps the rules, and by one that does not.

use proptest::prelude::*;

use super::*;
use crate::bus::{GuestAddress, Refusal};
use crate::virtio::Entropy;
use crate::virtio::driver::*;

fn machine() -> Machine {
    Machine::new(Box::new(Entropy))
}

/// Offsets of the capabilities with an ID, as a driver walks them.
fn capabilities(machine: &Machine, id: u8) -> Vec<u8> {
    let [mut at] = machine.config(0x34);
    let mut found = Vec::new();
    while at != 0 {
        let [this, next] = machine.config(at);
        if this == id {
            found.push(at);
        }
        at = next;
    }
    found
}

#[test]
fn a_driver_finds_everything_by_its_capabilities() {
    let machine = machine();
    assert_eq!(machine.config(0), [0xf4, 0x1a, 0x44, 0x10]);
    let [revision] = machine.config(8);
    assert_eq!(revision, 1);
    let found = capabilities(&machine, CAPABILITY_VENDOR);
    let read = |at: u8, offset: u8| u32::from_le_bytes(machine.config(at + offset));
    let kinds: Vec<[u8; 3]> = found.iter().map(|at| machine.config(at + 2)).collect();
    // Random numbers have no configuration of their own.
    assert_eq!(kinds, [[16, 1, 0], [20, 2, 0], [16, 3, 0], [20, 5, 0]]);
    assert_eq!((read(found[0], 8), read(found[0], 12)), (0, 0x38));
    assert_eq!(read(found[1], 16), NOTIFY_STRIDE);
    let [msix] = capabilities(&machine, 0x11)[..] else {
        panic!("one MSI-X capability")
    };
    assert_eq!(machine.config(msix + 2), [vectors(1) as u8 - 1, 0]);
    let [line, pin] = machine.config(0x3c);
    assert_eq!((u32::from(line), pin), (pci_line(3, 1), 1));
}

#[test]
fn the_window_reaches_the_registers_without_the_bar() {
    let machine = machine();
    let window = *capabilities(&machine, CAPABILITY_VENDOR).last().unwrap();
    let look_at = |offset: u32, bytes: u32| {
        machine.function.write_config(window + 4, &[0]);
        machine
            .function
            .write_config(window + 8, &offset.to_le_bytes());
        machine
            .function
            .write_config(window + 12, &bytes.to_le_bytes());
    };
    look_at(0x14, 1);
    machine.function.write_config(window + 16, &[1]);
    assert_eq!(machine.status(), 1);
    assert_eq!(machine.config(window + 16), [1]);
    look_at(0x12, 2);
    assert_eq!(machine.config(window + 16), [1, 0], "one queue");
    for (offset, bytes) in [(0x7fff_fffc, 4), (0x14, 0), (0x14, 8), (0x15, 4), (1, 2)] {
        look_at(offset, bytes);
        assert_eq!(machine.config(window + 16), [0; 4], "{offset:#x} {bytes}");
        machine.function.write_config(window + 16, &[0xff; 4]);
    }
    assert_eq!(machine.status(), 1);
}

#[test]
fn a_request_is_answered_and_told_by_pin() {
    let mut machine = machine();
    for features in [0, EVENT_INDEX] {
        machine.start(features);
        machine.submit(&[(DATA, 64, true), (DATA + 0x1000, 64, true)]);
        assert_eq!(machine.answer(), (0, 128));
        let numbers: [[u64; 8]; 2] = [machine.read_ram(DATA), machine.read_ram(DATA + 0x1000)];
        assert!(numbers.iter().all(|n| *n != [0; 8]) && numbers[0] != numbers[1]);
        wait_for("the pin", || {
            machine.chips.books().asserted == [pci_line(3, 1)]
        });
        let [_, status] = machine.config(5);
        assert_eq!(status & 8, 8, "the status register shows it");
        assert_eq!(machine.load(Structure::InterruptStatus, 0), [1]);
        assert!(machine.chips.books().asserted.is_empty());
        assert_eq!(machine.load(Structure::InterruptStatus, 0), [0]);
    }
}

#[test]
fn with_messages_the_queue_raises_its_vector() {
    let mut machine = machine();
    let [msix] = capabilities(&machine, 0x11)[..] else {
        panic!("one MSI-X capability")
    };
    machine.function.write_config(msix + 2, &[0, 0x80]);
    machine.start(0);
    machine.store(Structure::Common, 0x1a, &1u16.to_le_bytes());
    assert_eq!(machine.load(Structure::Common, 0x1a), [1, 0]);
    machine.submit(&[(DATA, 8, true)]);
    machine.answer();
    let pending = || machine.load::<8>(Structure::MsixPending, 0)[0];
    wait_for("the vector", || pending() == 0b10);
    machine.store(Structure::MsixTable, 16, &0xfee0_0000u32.to_le_bytes());
    machine.store(Structure::MsixTable, 24, &0x42u32.to_le_bytes());
    machine.store(Structure::MsixTable, 28, &[0; 4]);
    assert_eq!(pending(), 0, "delivered");
    let messages: Vec<u32> = machine
        .chips
        .books()
        .messages
        .values()
        .map(|m| m.data)
        .collect();
    assert_eq!(messages, [0x42]);
    assert!(machine.chips.books().asserted.is_empty());
}

#[test]
fn a_driver_that_asks_for_silence_is_not_interrupted() {
    let mut machine = machine();
    machine.start(0);
    let memory = machine.ram.memory();
    vm_memory::Bytes::write_obj(memory, 1u16, vm_memory::GuestAddress(DRIVER_RING)).unwrap();
    machine.submit(&[(DATA, 8, true)]);
    machine.answer();
    machine.set_status(0);
    assert!(machine.chips.books().asserted.is_empty());
}

#[test]
fn features_that_are_not_offered_or_not_of_version_1_are_not_accepted() {
    let mut machine = machine();
    assert_eq!(machine.features(), VERSION_1 | EVENT_INDEX | 1 << 28);
    for features in [0, EVENT_INDEX, VERSION_1 | 1, VERSION_1 | 1 << 34, u64::MAX] {
        assert!(!machine.negotiate(features), "{features:#x}");
        machine.set_status(RUNNING);
        assert_eq!(
            machine.status() & NEEDS_RESET,
            NEEDS_RESET,
            "no features, no driver"
        );
    }
    assert!(machine.negotiate(VERSION_1));
}

#[test]
fn a_queue_that_is_nowhere_or_of_no_size_wants_a_reset() {
    let mut machine = machine();
    for (size, descriptors, driver, device) in [
        (0, DESCRIPTORS, DRIVER_RING, DEVICE_RING),
        (3, DESCRIPTORS, DRIVER_RING, DEVICE_RING),
        (256, DESCRIPTORS, DRIVER_RING, DEVICE_RING),
        (128, RAM_BYTES - 128 * 16 + 16, DRIVER_RING, DEVICE_RING),
        (128, DESCRIPTORS + 8, DRIVER_RING, DEVICE_RING),
        (128, DESCRIPTORS, u64::MAX - 1, DEVICE_RING),
        (128, DESCRIPTORS, DRIVER_RING + 1, DEVICE_RING),
        (128, DESCRIPTORS, 0, DEVICE_RING),
        (128, DESCRIPTORS, DRIVER_RING, machine.bar),
        (128, DESCRIPTORS, DRIVER_RING, DEVICE_RING + 2),
    ] {
        assert!(machine.negotiate(VERSION_1));
        machine.place_queue(size, descriptors, driver, device);
        machine.set_status(RUNNING);
        assert_eq!(
            machine.status(),
            RUNNING | NEEDS_RESET,
            "{size} {descriptors:#x} {driver:#x} {device:#x}"
        );
        assert_eq!(machine.load(Structure::InterruptStatus, 0), [2]);
        machine.notify();
    }
    machine.start(0);
    machine.submit(&[(DATA, 8, true)]);
    assert_eq!(machine.answer(), (0, 8));
}

#[test]
fn a_broken_request_wants_a_reset_and_the_next_driver_is_served() {
    let mut machine = machine();
    for ranges in [
        &[(DATA, 8, false)][..],
        &[(DATA, 8, true), (DATA, 8, false)],
        &[(RAM_BYTES - 4, 8, true)],
        &[(u64::MAX, 1, true)],
    ] {
        machine.start(EVENT_INDEX);
        machine.submit(ranges);
        machine.wait_for_status(RUNNING | NEEDS_RESET);
        wait_for("the driver to be told", || {
            machine.load(Structure::InterruptStatus, 0) == [2]
        });
    }
    machine.start(EVENT_INDEX);
    machine.set_index(QUEUE_LIMIT);
    machine.notify();
    machine.wait_for_status(RUNNING | NEEDS_RESET);
    machine.start(EVENT_INDEX);
    machine.submit(&[(DATA, 16, true)]);
    assert_eq!(machine.answer(), (0, 16));
}

/// One more than a queue can have outstanding.
const QUEUE_LIMIT: u16 = crate::virtio::ring::QUEUE_SIZE + 1;

#[test]
fn many_requests_in_one_go_are_all_answered() {
    let mut machine = machine();
    machine.start(EVENT_INDEX);
    for _ in 0..5 {
        for head in 0..100 {
            let at = DATA + u64::from(head) * 64;
            write_descriptor(&machine.ram, DESCRIPTORS, head, (at, 64, WRITE, 0));
            machine.offer(head);
        }
        machine.notify();
        for head in 0..100 {
            assert_eq!(machine.answer(), (head, 64));
        }
    }
}

#[test]
fn notifications_follow_the_bar() {
    let machine = machine();
    let at = |bar: u64| bar + Structure::Notify.offset();
    let registered = || Vec::from_iter(machine.hypervisor.state().events.keys().copied());
    assert_eq!(registered(), [at(machine.bar)]);
    machine
        .function
        .write_config(0x10, &0xf000_0000u32.to_le_bytes());
    assert_eq!(registered(), [at(0xf000_0000)]);
    let owner = |address| machine.bus.read(GuestAddress(address), &mut [0]).device;
    assert_eq!(owner(0xf000_0014), "virtio-rng");
    assert_eq!(owner(machine.bar), "unclaimed");
    let Machine {
        function,
        bus,
        hypervisor,
        chips,
        ..
    } = machine;
    drop(function);
    assert!(hypervisor.state().events.is_empty());
    assert!(chips.books().messages.is_empty() && chips.books().asserted.is_empty());
    let hit = bus.read(GuestAddress(0xf000_0000), &mut [0; 4]);
    assert_eq!(hit.result, Err(Refusal::Unclaimed));
}

#[test]
fn registers_take_their_own_width_only() {
    let machine = machine();
    let address =
        |structure: Structure, offset| GuestAddress(machine.bar + structure.offset() + offset);
    for (structure, offset, bytes, refusal) in [
        (Structure::Common, 0x14, 2, Refusal::BadSize),
        (Structure::Common, 0x20, 8, Refusal::BadSize),
        (Structure::Common, 0x01, 1, Refusal::NoRegister),
        (Structure::Common, 0x38, 2, Refusal::NoRegister),
        (Structure::InterruptStatus, 0, 4, Refusal::BadSize),
        (Structure::InterruptStatus, 4, 1, Refusal::NoRegister),
        (Structure::Device, 0, 1, Refusal::NoRegister),
        (Structure::Notify, 0, 2, Refusal::NoRegister),
    ] {
        let hit = machine
            .bus
            .read(address(structure, offset), &mut [0; 8][..bytes]);
        assert_eq!(hit.result, Err(refusal), "{structure:?} {offset:#x}");
    }
    for (structure, offset, bytes, refusal) in [
        (Structure::Common, 0x14, 4, Refusal::BadSize),
        (Structure::InterruptStatus, 0, 1, Refusal::ReadOnly),
        (Structure::Device, 0, 4, Refusal::ReadOnly),
        (Structure::Notify, 0, 4, Refusal::BadSize),
        (Structure::Notify, 4, 2, Refusal::NoRegister),
        (Structure::MsixPending, 0, 4, Refusal::ReadOnly),
    ] {
        let hit = machine
            .bus
            .write(address(structure, offset), &[0; 8][..bytes]);
        assert_eq!(hit.result, Err(refusal), "{structure:?} {offset:#x}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a guest stores, the next driver that keeps the rules is served.
    #[test]
    fn no_sequence_of_stores_keeps_the_next_driver_out(
        stores in prop::collection::vec(store_anywhere(), 1..60)
    ) {
        let mut machine = machine();
        machine.store_all(&stores);
        machine.start(0);
        machine.submit(&[(DATA, 8, true)]);
        prop_assert_eq!(machine.answer(), (0, 8));
    }
}
