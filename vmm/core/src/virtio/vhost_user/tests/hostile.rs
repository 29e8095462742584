//! Guests that break the rules, against a process that keeps to the protocol.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use proptest::prelude::*;
use vhost::vhost_user::message::FrontendReq;

use super::scripted::{Answer, Scripted, USUAL};
use super::*;
use crate::virtio::driver::{
    DESCRIPTORS, DEVICE_RING, DRIVER_RING, NEEDS_RESET, RAM_BYTES, RUNNING, store_anywhere,
    wait_for,
};
use crate::virtio::ring::QUEUE_SIZE;

#[test]
fn queues_outside_of_ram_do_not_reach_the_process() {
    let (back_end, mut machine) = Scripted::with_machine(USUAL, 2);
    back_end.take();
    for (size, parts) in [
        (QUEUE_SIZE, [RAM_BYTES, DRIVER_RING, DEVICE_RING]),
        (QUEUE_SIZE, [DESCRIPTORS, u64::MAX - 1, DEVICE_RING]),
        (QUEUE_SIZE, [DESCRIPTORS, DRIVER_RING, RAM_BYTES - 4]),
        (QUEUE_SIZE, [DESCRIPTORS + 1, DRIVER_RING, DEVICE_RING]),
        (3, [DESCRIPTORS, DRIVER_RING, DEVICE_RING]),
        (0, [DESCRIPTORS, DRIVER_RING, DEVICE_RING]),
    ] {
        assert!(machine.negotiate(VERSION_1));
        machine.place_queue(QUEUE_SIZE, DESCRIPTORS, DRIVER_RING, DEVICE_RING);
        machine.place_queue_of(1, size, parts);
        machine.set_status(RUNNING);
        assert_eq!(machine.status(), RUNNING | NEEDS_RESET, "{size} {parts:x?}");
        machine.set_status(0);
    }
    assert!(back_end.take().is_empty());
    machine.start(0);
    machine.set_status(0);
    assert!(!back_end.take().is_empty(), "the next driver is served");
}

#[test]
fn a_thousand_drivers_leave_no_descriptor() {
    let (back_end, mut machine) = Scripted::with_machine(USUAL, 2);
    let vector = use_messages(&machine);
    let doorbells = machine.hypervisor.state().events.clone();
    let events = doorbells.into_values().chain([vector]);
    let events: Vec<String> = events.map(event_id).collect();
    let count = || Vec::from_iter(events.iter().map(|event| descriptors(event)));
    live(&back_end, &mut machine, 1);
    let before = count();
    for round in 0..1000 {
        live(&back_end, &mut machine, round);
    }
    assert_eq!(count(), before);
}

/// A driver that changes its vectors and MSI-X while it runs, and notifies a queue that it does not
/// use.
fn live(back_end: &Scripted, machine: &mut Machine, round: u16) {
    assert!(machine.negotiate(VERSION_1));
    machine.enable_messages(!round.is_multiple_of(3));
    machine.place_queue(QUEUE_SIZE, DESCRIPTORS, DRIVER_RING, DEVICE_RING);
    choose_vector(machine, VECTOR);
    machine.set_status(RUNNING);
    choose_vector(machine, round % 4);
    machine.enable_messages(round.is_multiple_of(2));
    machine.store(Structure::Notify, 4, &[1, 0]);
    machine.notify();
    machine.set_status(0);
    // With the descriptors that the back end has got.
    let told = back_end.take();
    assert!(
        told.iter()
            .any(|message| message.request == FrontendReq::GET_VRING_BASE)
    );
    assert_eq!(machine.status(), 0);
}

/// Returns a back end that signals the event of queue 0 when it is told to stop the queue.
fn calling_at_the_end() -> (Scripted, Machine) {
    let mut call: Option<File> = None;
    let (back_end, stream) = Scripted::start(USUAL, move |message| {
        match (message.request, &mut call) {
            (FrontendReq::SET_VRING_CALL, call) => {
                *call = message.file.as_ref().map(|file| file.try_clone().unwrap());
            }
            (FrontendReq::GET_VRING_BASE, Some(call)) => {
                call.write_all(&1u64.to_le_bytes()).unwrap();
            }
            _ => {}
        }
        Answer::Proper
    });
    let process = DeviceProcess::connect(stream, description(2, PATIENCE), Box::new(()));
    (back_end, machine(process.unwrap()))
}

#[test]
fn a_call_at_the_end_of_a_driver_does_not_interrupt_the_next() {
    let (_back_end, mut machine) = calling_at_the_end();
    for round in 0..50 {
        // Sometimes at once, sometimes when the thread has had time for the call.
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(
            machine.chips.books().asserted.is_empty(),
            "without a driver"
        );
        machine.start(0);
        std::thread::sleep(Duration::from_millis(2));
        assert!(
            machine.chips.books().asserted.is_empty(),
            "with the next driver"
        );
        machine.set_status(0);
    }
}

#[test]
fn a_call_between_drivers_interrupts_nobody() {
    let (back_end, mut machine) = Scripted::with_machine(USUAL, 2);
    machine.start(0);
    machine.set_status(0);
    let told = back_end.take();
    let mut calls = told
        .iter()
        .filter(|m| m.request == FrontendReq::SET_VRING_CALL);
    let mut call = calls.next().unwrap().file.as_ref().unwrap();
    call.write_all(&1u64.to_le_bytes()).unwrap();
    wait_for("the call to be taken", || signals(call.as_raw_fd()) == 0);
    std::thread::sleep(Duration::from_millis(20));
    assert!(machine.chips.books().asserted.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever a guest stores, the process is there for the next driver.
    #[test]
    fn no_sequence_of_stores_keeps_the_next_driver_from_the_process(
        stores in prop::collection::vec(store_anywhere(), 1..60)
    ) {
        let (back_end, mut machine) = Scripted::with_machine(USUAL, 2);
        machine.store_all(&stores);
        machine.set_status(0);
        back_end.take();
        machine.start(0);
        machine.set_status(0);
        let stopped = back_end.take();
        let last = stopped.iter().rev().find(|message| !message.body.is_empty());
        prop_assert_eq!(last.map(|message| message.u32(0)), Some(0), "queue 0 is taken back");
        prop_assert_eq!(machine.status(), 0);
    }
}
