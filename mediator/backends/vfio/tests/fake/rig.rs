//! A device without a device, sessions on it, and short ways to ask them for things.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_host_vfio::fake::FakeHardware;
use causeway_host_vfio::{Device, RegionIndex};
use causeway_mediator::backend::Backend;
use causeway_mediator::{Client, Mediator, Quota, Session};
use causeway_mediator_testing::{FakeHost, ask_as};
use causeway_memory::{Backing, DeviceMapping};
use causeway_protocol::message::*;
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};
use causeway_vfio_backend::Vfio;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub const PAGE: u64 = 4096;
pub const BAR: u8 = 2;
pub const READ: u32 = 1;
pub const READ_WRITE: u32 = 3;

/// Base address register: 64 bits, prefetchable.
pub const MEMORY_64: u32 = 0xc;

/// Hardware whose BARs are of these kinds and sizes.
pub fn hardware(bars: &[(u8, u32, u64)]) -> Arc<FakeHardware> {
    let mut hardware = FakeHardware::new().unwrap();
    for (bar, _, bytes) in bars {
        hardware = hardware
            .with_region(RegionIndex::Bar(*bar), *bytes)
            .unwrap();
    }
    set_registers(&hardware, bars);
    Arc::new(hardware)
}

/// Stores the low bits of base address registers, which say what a BAR is.
pub fn set_registers(hardware: &FakeHardware, bars: &[(u8, u32, u64)]) {
    for (bar, register, _) in bars {
        let at = 0x10 + 4 * u64::from(*bar);
        let bytes = register.to_le_bytes();
        hardware.poke(RegionIndex::Config, at, &bytes).unwrap();
    }
}

pub fn device(hardware: &Arc<FakeHardware>) -> Device {
    hardware.device("0000:00:03.0".parse().unwrap()).unwrap()
}

/// A card with `bytes` bytes of memory, full of what somebody else has left there.
pub struct Rig {
    pub hardware: Arc<FakeHardware>,
    pub backend: Arc<Vfio>,
    pub mediator: Arc<Mediator>,
}

impl Rig {
    pub fn new(bytes: u64) -> Self {
        let hardware = hardware(&[(BAR, MEMORY_64, bytes)]);
        let old = vec![0xee; bytes as usize];
        hardware.poke(RegionIndex::Bar(BAR), 0, &old).unwrap();
        let backend = Vfio::over(device(&hardware), None).unwrap();
        let mediator = Mediator::new(Arc::clone(&backend) as Arc<dyn Backend>);
        Self {
            hardware,
            backend,
            mediator,
        }
    }

    pub fn guest(&self) -> Guest {
        self.guest_with(Quota::default())
    }

    pub fn guest_with(&self, quota: Quota) -> Guest {
        let host = FakeHost::new(1 << 20, 1 << 30).unwrap();
        let session = self.mediator.open(Arc::clone(&host) as _, quota, "test");
        let guest = Guest { host, session };
        guest.hello();
        guest
    }

    /// What is in the card's memory, as the card sees it.
    pub fn peek(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let mut seen = vec![0; bytes as usize];
        let bar = RegionIndex::Bar(BAR);
        self.hardware.peek(bar, offset, &mut seen).unwrap();
        seen
    }
}

pub type Refused = (Status, u32);

pub struct Guest {
    pub host: Arc<FakeHost>,
    pub session: Arc<Session>,
}

impl Guest {
    pub fn ask<Q: IntoBytes + Immutable, P: FromBytes>(
        &self,
        opcode: Opcode,
        request: &Q,
    ) -> Result<P, Refused> {
        ask_as(&self.session, Client::FIRST, opcode, request)
    }

    pub fn hello(&self) {
        let hello = Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            ..Hello::default()
        };
        self.ask::<_, HelloReply>(Opcode::Hello, &hello).unwrap();
    }

    pub fn allocate(&self, kind: MemoryKind, size: u64) -> Result<u32, Refused> {
        let request = Allocate {
            size,
            kind: kind as u32,
            ..Allocate::default()
        };
        let reply: AllocateReply = self.ask(Opcode::Allocate, &request)?;
        Ok(reply.handle)
    }

    pub fn free(&self, handle: u32) {
        let request = HandleRequest {
            handle,
            ..HandleRequest::default()
        };
        self.ask::<_, Empty>(Opcode::Free, &request).unwrap();
    }

    /// Maps memory where the guest's CPUs see it.
    pub fn show(&self, allocation: u32, length: u64) -> View {
        let request = MapCpu {
            allocation,
            access: READ_WRITE,
            offset: 0,
            length,
        };
        let reply: AddressReply = self.ask(Opcode::MapCpu, &request).unwrap();
        let placement = self.host.placements().remove(&reply.address).unwrap();
        let Backing::Device(memory) = placement.backing else {
            panic!("memory of the device is placed as such");
        };
        let mapping = memory.map(placement.offset, placement.bytes).unwrap();
        View {
            mapping,
            bytes: placement.bytes,
        }
    }

    pub fn space(&self) -> u32 {
        let reply: HandleReply = self.ask(Opcode::CreateSpace, &Empty {}).unwrap();
        reply.handle
    }

    pub fn map(&self, space: u32, allocation: u32, length: u64) -> u64 {
        let request = MapGpu {
            space,
            allocation,
            length,
            access: READ_WRITE,
            ..MapGpu::default()
        };
        let reply: AddressReply = self.ask(Opcode::MapGpu, &request).unwrap();
        reply.address
    }
}

/// What a guest's CPUs see of memory.
pub struct View {
    mapping: Box<dyn DeviceMapping>,
    bytes: u64,
}

impl View {
    pub fn load(&self, index: u64) -> u64 {
        // SAFETY: `at` checks the range; the mapping is page-aligned and lives.
        unsafe { self.at(index).read_volatile() }
    }

    pub fn store(&self, index: u64, value: u64) {
        // SAFETY: as above; it is writable.
        unsafe { self.at(index).write_volatile(value) }
    }

    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.bytes / 8).map(|index| self.load(index))
    }

    fn at(&self, index: u64) -> *mut u64 {
        assert!(index < self.bytes / 8);
        let base = self.mapping.as_ptr().as_ptr().cast::<u64>();
        base.wrapping_add(index as usize)
    }
}

pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}
