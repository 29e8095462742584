//! A device in memory, for tests of the layers above: it executes batches through a closure.
#![allow(unsafe_code)] // Windows over memory of its own.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::boxed::Box;
use std::sync::Mutex;
use std::vec;
use std::vec::Vec;

use causeway_protocol::message::{Header, Opcode, Status};
use causeway_protocol::registers::{MAGIC, Register};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};
use zerocopy::{FromBytes, IntoBytes};

use crate::transport::{ControlArea, Transport};
use crate::window::Window;

/// What the closure says about a message: status and detail. It writes the reply into the body.
pub(crate) type Answer = (Status, u32);
type Script = Box<dyn FnMut(Opcode, &mut [u8]) -> Answer + Send>;

/// Memory that both sides reach through windows only.
struct Memory(Box<[AtomicU64]>);

impl Memory {
    fn new(bytes: usize) -> Self {
        Self((0..bytes / 8).map(|_| AtomicU64::new(0)).collect())
    }

    fn window(&self) -> Window {
        let base = NonNull::from(&self.0[0]).cast();
        // SAFETY: the words live as long as the fake; all access is through windows, hence volatile
        // or atomic.
        unsafe { Window::new(base, self.0.len() * 8) }
    }
}

pub(crate) struct FakeDevice {
    control: Memory,
    aperture: Memory,
    script: Mutex<Script>,
    /// What the version register holds.
    pub(crate) version: u32,
    /// How many register accesses it answers before it is gone.
    pub(crate) answers: u32,
    /// Register accesses: each would be an exit.
    pub(crate) exits: AtomicU32,
    /// Batches executed.
    pub(crate) batches: AtomicU32,
    /// Doorbells rung.
    pub(crate) doorbells: Mutex<Vec<u32>>,
}

pub(crate) const APERTURE_BYTES: usize = 1 << 20;

impl FakeDevice {
    pub(crate) fn new(script: impl FnMut(Opcode, &mut [u8]) -> Answer + Send + 'static) -> Self {
        Self {
            control: Memory::new(8192),
            aperture: Memory::new(APERTURE_BYTES),
            script: Mutex::new(Box::new(script)),
            version: u32::from(VERSION_MAJOR) << 16 | u32::from(VERSION_MINOR),
            answers: u32::MAX,
            exits: AtomicU32::new(0),
            batches: AtomicU32::new(0),
            doorbells: Mutex::new(vec![]),
        }
    }

    fn execute(&self, bytes: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        let mut batch = vec![0; bytes];
        self.control.window().read(0, &mut batch).unwrap();
        let mut script = self.script.lock().unwrap();
        let mut failed = false;
        let mut rest = &mut batch[..];
        while !rest.is_empty() {
            let (header, _) = Header::mut_from_prefix(rest).unwrap();
            let (opcode, length) = (
                Opcode::from_wire(header.opcode).unwrap(),
                header.length as usize,
            );
            let (message, tail) = rest.split_at_mut(length);
            let (head, body) = message.split_at_mut(size_of::<Header>());
            let (status, detail) = if failed {
                (Status::NotRun, 0)
            } else {
                script(opcode, body)
            };
            failed |= status != Status::Ok;
            let header = Header::mut_from_bytes(head).unwrap();
            (header.status, header.detail) = (status as u32, detail);
            rest = tail;
        }
        self.control.window().write(0, &batch).unwrap();
    }
}

impl Transport for FakeDevice {
    fn read_register(&self, register: Register) -> u32 {
        if self.exits.fetch_add(1, Ordering::Relaxed) >= self.answers {
            return u32::MAX;
        }
        match register {
            Register::Magic => MAGIC,
            Register::Version => self.version,
            Register::ApertureLow => APERTURE_BYTES as u32,
            _ => 0,
        }
    }
    fn write_register(&self, register: Register, value: u32) {
        self.exits.fetch_add(1, Ordering::Relaxed);
        if register == Register::ControlDoorbell {
            self.execute(value as usize);
        }
    }
    fn control_area(&self) -> ControlArea {
        ControlArea {
            window: self.control.window(),
            address: 0x1000,
        }
    }
    fn aperture(&self) -> Window {
        self.aperture.window()
    }
    fn ring_doorbell(&self, index: u32) {
        self.doorbells.lock().unwrap().push(index);
    }
}

/// Writes `reply` to the front of a message body.
pub(crate) fn answer(body: &mut [u8], reply: &(impl IntoBytes + zerocopy::Immutable)) -> Answer {
    let reply = reply.as_bytes();
    body[..reply.len()].copy_from_slice(reply);
    (Status::Ok, 0)
}
