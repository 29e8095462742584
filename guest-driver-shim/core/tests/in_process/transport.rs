//! The device's registers in front of a session in the same process.
#![allow(unsafe_code)] // Windows over the memory of the host next door.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_mediator::{Client, GuestSession, Mediator, Quota, Session};
use causeway_memory::Mapping;
use causeway_shim::protocol::registers::{MAGIC, RESET_KEY, Register};
use causeway_shim::protocol::{VERSION_MAJOR, VERSION_MINOR};
use causeway_shim::{ControlArea, RamRange, Sleeping, Status, Transport, Window};

use crate::host::ProcessHost;

const RAM_BYTES: u64 = 4 << 20;
const APERTURE_BYTES: u64 = 1 << 30;
const CONTROL_ADDRESS: u64 = 0x1000;
const CONTROL_BYTES: usize = 64 << 10;
/// Where [`Machine::put`] puts things.
const SCRATCH_ADDRESS: u64 = 1 << 20;

/// A guest's machine without a VM: session, host, and the registers between.
pub struct Machine {
    pub session: Arc<Session>,
    pub host: Arc<ProcessHost>,
    client: Client,
    /// How waits sleep here.
    pub sleeping: Sleeping,
    /// Sleeps, and those that an interrupt ended.
    pub sleeps: AtomicU32,
    pub interrupts: AtomicU32,
    base: AtomicU64,
    status: AtomicU32,
    /// Register accesses: each would be an exit.
    pub exits: AtomicU32,
    pub doorbells: AtomicU32,
}

impl Machine {
    pub fn new(mediator: &Mediator, quota: Quota, name: &str) -> Self {
        let host = ProcessHost::new(RAM_BYTES, APERTURE_BYTES);
        let session = mediator.open(Arc::clone(&host) as _, quota, name);
        Self::of(session, host, Client::FIRST)
    }

    /// Another client of the same session, as another process of the guest would be one.
    pub fn beside(&self, client: u32) -> Self {
        let client = Client::new(client).unwrap();
        Self::of(Arc::clone(&self.session), Arc::clone(&self.host), client)
    }

    fn of(session: Arc<Session>, host: Arc<ProcessHost>, client: Client) -> Self {
        Self {
            session,
            host,
            client,
            sleeping: Sleeping::InDevice,
            sleeps: AtomicU32::new(0),
            interrupts: AtomicU32::new(0),
            base: AtomicU64::new(0),
            status: AtomicU32::new(0),
            exits: AtomicU32::new(0),
            doorbells: AtomicU32::new(0),
        }
    }

    fn ram(&self) -> &Mapping {
        self.host.fake.ram_mapping()
    }

    /// Puts bytes into guest RAM.
    pub fn put(&self, bytes: &[u8]) -> RamRange {
        self.ram().write(SCRATCH_ADDRESS, bytes).unwrap();
        RamRange {
            address: SCRATCH_ADDRESS,
            bytes: bytes.len() as u64,
        }
    }

    /// Guest RAM to record packets in, and its guest-physical address.
    pub fn recording_ram(&self, bytes: usize) -> (Window, u64) {
        let address = 2 << 20;
        assert!(bytes <= 1 << 20);
        (self.ram_window(address, bytes), address as u64)
    }

    /// What is in guest RAM behind what was put there last.
    pub fn log(&self) -> RamRange {
        RamRange {
            address: 3 << 20,
            bytes: 512,
        }
    }

    pub fn read(&self, range: RamRange, bytes: u32) -> String {
        let mut text = vec![0; bytes as usize];
        self.ram().read(range.address, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn ram_window(&self, address: usize, bytes: usize) -> Window {
        assert!(address + bytes <= RAM_BYTES as usize);
        // SAFETY: within the mapping of the RAM, which lives as long as the machine; volatile
        // access only.
        unsafe { Window::new(self.ram().as_ptr().add(address), bytes) }
    }

    fn execute(&self, bytes: u32) -> Status {
        let base = self.base.load(Ordering::Relaxed);
        let mut batch = vec![0; bytes as usize];
        self.ram().read(base, &mut batch).unwrap();
        let status = self.session.execute(self.client, &mut batch);
        self.ram().write(base, &batch).unwrap();
        status
    }
}

impl Transport for Machine {
    fn read_register(&self, register: Register) -> u32 {
        self.exits.fetch_add(1, Ordering::Relaxed);
        match register {
            Register::Magic => MAGIC,
            Register::Version => u32::from(VERSION_MAJOR) << 16 | u32::from(VERSION_MINOR),
            Register::Status => self.session.status_bits(),
            Register::BatchStatus => self.status.load(Ordering::Relaxed),
            Register::ApertureLow => APERTURE_BYTES as u32,
            Register::ApertureHigh => (APERTURE_BYTES >> 32) as u32,
            _ => 0,
        }
    }

    fn write_register(&self, register: Register, value: u32) {
        self.exits.fetch_add(1, Ordering::Relaxed);
        match register {
            Register::ControlBaseLow => self.base.store(u64::from(value), Ordering::Relaxed),
            Register::ControlDoorbell => {
                let status = self.execute(value);
                self.status.store(status as u32, Ordering::Relaxed);
            }
            Register::Reset if value == RESET_KEY && self.client == Client::FIRST => {
                self.session.reset();
            }
            Register::Reset if value == RESET_KEY => self.session.reset_client(self.client),
            _ => {}
        }
    }

    fn control_area(&self) -> ControlArea {
        let number = self.client.number() as usize;
        let address = CONTROL_ADDRESS as usize + number * CONTROL_BYTES;
        ControlArea {
            window: self.ram_window(address, CONTROL_BYTES),
            address: address as u64,
        }
    }

    fn aperture(&self) -> Window {
        // SAFETY: reserved as long as the machine lives; tests touch only what is mapped, by
        // volatile accesses.
        unsafe { Window::new(self.host.aperture.as_ptr(), APERTURE_BYTES as usize) }
    }

    fn ring_doorbell(&self, index: u32) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        assert!(self.host.fake.ring(index), "doorbell {index} is not bound");
    }

    fn sleeping(&self) -> Sleeping {
        self.sleeping
    }

    fn sleep(&self, limit_ns: u64) -> u64 {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let limit = Duration::from_nanos(limit_ns);
        if self.sleeping == Sleeping::ByTime {
            std::thread::sleep(limit);
        }
        while begun.elapsed() < limit {
            if self.host.fake.take_interrupt(self.client) {
                self.interrupts.fetch_add(1, Ordering::Relaxed);
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        begun.elapsed().as_nanos() as u64
    }
}
