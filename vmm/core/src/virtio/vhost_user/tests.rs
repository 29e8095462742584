//! The front end against back ends in this process: one of rust-vmm, which executes requests, and
//! one that answers as a test tells it.

mod daemon;
mod endings;
mod handover;
mod hostile;
mod misbehaving;
mod scripted;
mod serving;

use std::fs;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::virtio::device::{Kind, VERSION_1};
use crate::virtio::driver::Machine;
use crate::virtio::executor::Device;
use crate::virtio::outside::PATIENCE;
use crate::virtio::registers::Structure;

/// A feature of the device, as a driver knows them.
const FEATURE: u64 = 1 << 3;
/// A feature of the device that the back end has no part in.
const OWN_FEATURE: u64 = 1 << 4;

fn description(queues: u16, patience: Duration) -> Description {
    Description {
        process: "the process of the test".to_owned(),
        kind: Kind {
            id: 0x3f,
            class: (0xff, 0),
            name: "elsewhere",
        },
        features: FEATURE,
        own_features: 0,
        asks_configuration: false,
        configuration: vec![7; 4],
        queues,
        patience,
    }
}

fn machine(process: DeviceProcess) -> Machine {
    Machine::of(Device::Process(Box::new(process)))
}

/// Stands for what ends the process: says that it was dropped.
struct Life(Arc<AtomicBool>);

impl Life {
    fn new() -> (Box<Self>, Arc<AtomicBool>) {
        let over = Arc::new(AtomicBool::new(false));
        (Box::new(Self(Arc::clone(&over))), over)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// MSI-X vector of queue 0.
const VECTOR: u16 = 1;

/// Enables MSI-X, and gives the vector of queue 0 a message. Returns the descriptor of the event
/// that KVM turns into the message.
fn use_messages(machine: &Machine) -> RawFd {
    machine.enable_messages(true);
    let message = [0xfee0_0000u32, 0, 0x41, 0];
    for (word, value) in (0..).zip(message) {
        let at = 16 * u64::from(VECTOR) + 4 * word;
        machine.store(Structure::MsixTable, at, &value.to_le_bytes());
    }
    choose_vector(machine, VECTOR);
    let connected = Vec::from_iter(machine.chips.books().connected.keys().copied());
    let [event] = connected[..] else {
        panic!("one vector has a message: {connected:?}")
    };
    event
}

/// Makes `vector` the MSI-X vector of queue 0.
fn choose_vector(machine: &Machine, vector: u16) {
    machine.select_queue(0);
    machine.store(Structure::Common, 0x1a, &vector.to_le_bytes());
}

/// Returns a line of what the kernel says about a descriptor of this process.
fn about(descriptor: &str, line: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    let rest = text.lines().find_map(|found| found.strip_prefix(line))?;
    Some(rest.trim().to_owned())
}

/// Returns what identifies the eventfd behind a descriptor, whichever of its copies that is.
fn event_id(descriptor: RawFd) -> String {
    about(&descriptor.to_string(), "eventfd-id:").unwrap()
}

/// Returns how many signals of the eventfd behind a descriptor nobody has taken.
fn signals(descriptor: RawFd) -> u64 {
    let count = about(&descriptor.to_string(), "eventfd-count:").unwrap();
    u64::from_str_radix(&count, 16).unwrap()
}

/// Returns the number of this process's descriptors of an eventfd. Other tests run in the same
/// process, so the number of all descriptors says nothing.
fn descriptors(event_id: &str) -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let same = |name: &String| about(name, "eventfd-id:").as_deref() == Some(event_id);
    names.filter(same).count()
}
