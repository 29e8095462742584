//! Requests that a back end in this process executes, and the interrupts that it raises.

use vm_memory::{Bytes, GuestAddress};

use super::daemon::machine_with_daemon;
use super::*;
use crate::interrupts::pci_line;
use crate::virtio::driver::{
    DATA, DESCRIPTORS, DEVICE_RING, DRIVER_RING, EVENT_INDEX, NEXT, RUNNING, VERSION_1, WRITE,
    wait_for, write_descriptor,
};
use crate::virtio::registers::Structure;
use crate::virtio::ring::QUEUE_SIZE;

/// Bytes from one queue and its buffers to the next.
const QUEUE_STRIDE: u64 = 0x10_0000;

/// Makes the driver's next request, which the back end answers with `cde`.
fn ask(machine: &mut Machine) {
    let memory = machine.ram.memory();
    memory.write_slice(b"bcd...", GuestAddress(DATA)).unwrap();
    machine.submit(&[(DATA, 3, false), (DATA + 3, 3, true)]);
}

fn expect_answer(machine: &mut Machine) {
    assert_eq!(machine.answer(), (0, 3));
    assert_eq!(&machine.read_ram::<[u8; 6]>(DATA), b"bcdcde");
}

#[test]
fn the_process_answers_in_guest_ram_and_raises_the_vector_itself() {
    let (daemon, mut machine) = machine_with_daemon(1);
    assert!(machine.negotiate(VERSION_1));
    machine.place_queue(QUEUE_SIZE, DESCRIPTORS, DRIVER_RING, DEVICE_RING);
    let event = use_messages(&machine);
    machine.set_status(RUNNING);
    for count in 1..4 {
        ask(&mut machine);
        expect_answer(&mut machine);
        // Exactly one: this process adds none.
        wait_for("a signal", || signals(event) == count);
        assert_eq!(*daemon.adder.interrupted_by.lock(), event_id(event));
    }
    assert!(machine.chips.books().asserted.is_empty());
}

#[test]
fn without_messages_the_pin_is_asserted() {
    let (_daemon, mut machine) = machine_with_daemon(1);
    machine.start(EVENT_INDEX);
    for _ in 0..3 {
        ask(&mut machine);
        expect_answer(&mut machine);
        let line = pci_line(3, 1);
        wait_for("the pin", || machine.chips.books().asserted == [line]);
        assert_eq!(machine.load(Structure::InterruptStatus, 0), [1]);
        assert!(machine.chips.books().asserted.is_empty());
        // As a driver that wants the next interrupt.
        let used: u16 = machine.read_ram(DEVICE_RING + 2);
        let used_event = GuestAddress(DRIVER_RING + 4 + 2 * u64::from(QUEUE_SIZE));
        machine.ram.memory().write_obj(used, used_event).unwrap();
    }
}

#[test]
fn messages_that_are_enabled_while_the_driver_runs_arrive() {
    let (_daemon, mut machine) = machine_with_daemon(1);
    machine.start(0);
    // Now the process has an event of this process for the pin.
    ask(&mut machine);
    expect_answer(&mut machine);
    wait_for("the pin", || !machine.chips.books().asserted.is_empty());
    let event = use_messages(&machine);
    assert!(machine.chips.books().asserted.is_empty());
    ask(&mut machine);
    expect_answer(&mut machine);
    wait_for("a signal", || signals(event) == 1);
    assert!(machine.chips.books().asserted.is_empty());
}

#[test]
fn the_next_driver_is_served_and_nothing_is_between_the_drivers() {
    let (_daemon, mut machine) = machine_with_daemon(1);
    for _ in 0..3 {
        machine.start(0);
        ask(&mut machine);
        expect_answer(&mut machine);
        machine.set_status(0);
        ask(&mut machine);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(
            machine.read_ram::<u16>(DEVICE_RING + 2),
            1,
            "no driver, no answer"
        );
        assert!(machine.chips.books().asserted.is_empty());
    }
}

/// Makes a request in a queue that the driver has put at its own place, and waits for the answer.
fn ask_in(machine: &Machine, queue: u16) {
    let memory = machine.ram.memory();
    let [table, driver, device, data] =
        [DESCRIPTORS, DRIVER_RING, DEVICE_RING, DATA].map(|at| at + place(queue));
    memory.write_slice(b"x.", GuestAddress(data)).unwrap();
    write_descriptor(&machine.ram, table, 0, (data, 1, NEXT, 1));
    write_descriptor(&machine.ram, table, 1, (data + 1, 1, WRITE, 0));
    memory
        .write_obj([0u16, 1, 0], GuestAddress(driver))
        .unwrap();
    let at = 4 * u64::from(queue);
    machine.store(Structure::Notify, at, &queue.to_le_bytes());
    wait_for("an answer", || machine.read_ram::<u16>(device + 2) == 1);
    assert_eq!(&machine.read_ram::<[u8; 2]>(data), b"xy");
}

fn place(queue: u16) -> u64 {
    QUEUE_STRIDE * u64::from(queue)
}

#[test]
fn each_queue_is_served_by_its_own_notification() {
    let (_daemon, mut machine) = machine_with_daemon(4);
    assert!(machine.negotiate(VERSION_1));
    for (queue, size) in [(0, 16), (2, 256), (3, 1)] {
        let parts = [DESCRIPTORS, DRIVER_RING, DEVICE_RING].map(|at| at + place(queue));
        machine.place_queue_of(queue, size.min(QUEUE_SIZE), parts);
    }
    machine.set_status(RUNNING);
    for queue in [2, 0] {
        ask_in(&machine, queue);
    }
}
