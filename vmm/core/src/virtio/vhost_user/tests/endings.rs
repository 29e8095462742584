//! A process that ends: the device asks for a reset from then on, and nothing spins or hangs.

use std::fs;
use std::sync::atomic::Ordering;

use vhost::vhost_user::message::FrontendReq;

use super::scripted::{Answer, Scripted, USUAL};
use super::*;
use crate::virtio::driver::{
    DESCRIPTORS, DEVICE_RING, DRIVER_RING, NEEDS_RESET, RUNNING, wait_for,
};
use crate::virtio::registers::Structure;
use crate::virtio::ring::QUEUE_SIZE;

/// The last message by which a process gets a queue.
const LAST: FrontendReq = FrontendReq::SET_VRING_ENABLE;

/// Starts a driver, whatever the device says.
fn begin(machine: &mut Machine) {
    assert!(machine.negotiate(VERSION_1));
    machine.place_queue(QUEUE_SIZE, DESCRIPTORS, DRIVER_RING, DEVICE_RING);
    machine.set_status(RUNNING);
}

/// Waits until the driver is asked for a reset, and is told so by an interrupt.
fn expect_the_request(machine: &Machine) {
    machine.wait_for_status(RUNNING | NEEDS_RESET);
    wait_for("the driver to be told", || {
        machine.load(Structure::InterruptStatus, 0) == [2]
    });
}

/// Returns the folder of the only thread with a name.
fn thread(name: &str) -> Option<std::path::PathBuf> {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let mut folders = threads.map(|thread| thread.unwrap().path());
    folders.find(|folder| {
        let found = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        found.trim() == name
    })
}

/// Returns the processor time that the thread with a name has used, in ticks of the kernel.
fn ticks(name: &str) -> u64 {
    let stat = fs::read_to_string(thread(name).unwrap().join("stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    // Fields 14 and 15, utime and stime (proc(5)); the state is field 3.
    let times = fields.split(' ').skip(11).take(2);
    times.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

fn named(name: &str) -> (Scripted, Machine) {
    let (back_end, stream) = Scripted::start(USUAL, |_| Answer::Proper);
    let process = DeviceProcess::connect(stream, description(2, PATIENCE), Box::new(()));
    let device = Device::Process(Box::new(process.unwrap()));
    (back_end, Machine::with_thread(name, device))
}

#[test]
fn a_process_that_ends_while_a_driver_runs_makes_all_drivers_reset() {
    let (back_end, mut machine) = named("ends-in-driver");
    machine.start(0);
    back_end.wait_for(LAST);
    drop(back_end);
    expect_the_request(&machine);
    for _ in 0..3 {
        begin(&mut machine);
        expect_the_request(&machine);
    }
    let before = ticks("ends-in-driver");
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        ticks("ends-in-driver") <= before + 5,
        "the thread does not spin"
    );
    drop(machine);
    // A thread that has ended is listed a little longer.
    wait_for("the thread's end", || thread("ends-in-driver").is_none());
}

#[test]
fn a_process_that_ends_between_drivers_makes_the_next_ones_reset() {
    let (back_end, mut machine) = named("ends-between");
    machine.start(0);
    machine.set_status(0);
    drop(back_end);
    for _ in 0..2 {
        begin(&mut machine);
        expect_the_request(&machine);
    }
    machine.set_status(0);
    assert_eq!(machine.status(), 0, "the reset itself succeeds");
}

#[test]
fn a_process_that_ends_between_drivers_interrupts_nobody() {
    let (back_end, mut machine) = named("ends-quietly");
    machine.start(0);
    machine.set_status(0);
    drop(back_end);
    std::thread::sleep(Duration::from_millis(50));
    assert!(machine.chips.books().asserted.is_empty());
    assert_eq!(machine.status(), 0, "as after every reset");
}

#[test]
fn a_process_that_ends_before_all_drivers_makes_them_reset() {
    let (back_end, mut machine) = named("ends-first");
    drop(back_end);
    for _ in 0..2 {
        begin(&mut machine);
        expect_the_request(&machine);
    }
}

#[test]
fn a_message_tells_the_driver_of_the_end_if_it_uses_messages() {
    let (back_end, mut machine) = named("ends-msix");
    assert!(machine.negotiate(VERSION_1));
    machine.enable_messages(true);
    machine.store(Structure::Common, 0x10, &2u16.to_le_bytes());
    machine.place_queue(QUEUE_SIZE, DESCRIPTORS, DRIVER_RING, DEVICE_RING);
    machine.set_status(RUNNING);
    back_end.wait_for(LAST);
    drop(back_end);
    wait_for("the vector", || {
        machine.load::<8>(Structure::MsixPending, 0)[0] == 0b100
    });
    assert_eq!(machine.status(), RUNNING | NEEDS_RESET);
}

#[test]
fn a_dropped_function_ends_its_thread_the_connection_and_the_process() {
    for with_driver in [false, true] {
        let (back_end, stream) = Scripted::start(USUAL, |_| Answer::Proper);
        let (life, over) = Life::new();
        let process = DeviceProcess::connect(stream, description(2, PATIENCE), life).unwrap();
        let device = Device::Process(Box::new(process));
        let mut machine = Machine::with_thread("dropped", device);
        if with_driver {
            machine.start(0);
            wait_for("the thread's name", || thread("dropped").is_some());
        }
        assert!(!over.load(Ordering::Acquire));
        drop(machine);
        assert!(over.load(Ordering::Acquire));
        wait_for("the thread's end", || thread("dropped").is_none());
        back_end.wait_for_end();
    }
}
