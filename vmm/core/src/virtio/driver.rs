//! A driver for tests: it finds and uses a function as Linux does, through configuration space, the
//! MMIO bus and guest memory, and breaks the rules when a test wants it to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::device::VirtioDevice;
use super::executor::Device;
use super::function::{Surroundings, VirtioFunction};
use super::registers::{BAR_BYTES, Structure};
use super::ring::QUEUE_SIZE;
use crate::bus::{self, MmioBus};
use crate::hypervisor::IoEvents;
use crate::hypervisor::fake::Fake;
use crate::interrupts::fake::FakeChips;
use crate::memory::{GuestRam, RamView};
use crate::pci::{COMMAND_MEMORY, ConfigAccess, Layout};

pub const RAM_BYTES: u64 = 8 << 20;
/// Guest-physical address of the descriptor table of the test driver's queue.
pub const DESCRIPTORS: u64 = 0x10000;
pub const DRIVER_RING: u64 = 0x11000;
pub const DEVICE_RING: u64 = 0x12000;
/// Guest-physical address of the test driver's data buffers.
pub const DATA: u64 = 0x20000;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

pub const VERSION_1: u64 = 1 << 32;
pub const EVENT_INDEX: u64 = 1 << 29;
/// Value of the device status register once the driver has started to use the device.
pub const RUNNING: u8 = 0xf;
pub const NEEDS_RESET: u8 = 0x40;

/// PCI capability ID of MSI-X.
const CAPABILITY_MSIX: u8 = 0x11;

/// A descriptor as a driver writes it: guest-physical address, length in bytes, flags, and index of
/// the next descriptor.
pub type Descriptor = (u64, u32, u16, u16);

/// Writes `descriptor` to guest memory, as entry number `index` of the descriptor table at
/// guest-physical address `table`.
pub fn write_descriptor(ram: &RamView, table: u64, index: u16, descriptor: Descriptor) {
    let (address, length, flags, next) = descriptor;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    let at = GuestAddress(table + 16 * u64::from(index));
    ram.memory().write_slice(&bytes, at).unwrap();
}

/// A guest for tests: it has RAM, one virtio function, and a driver that uses the function.
pub struct Machine {
    pub function: VirtioFunction,
    pub bus: Arc<MmioBus>,
    pub ram: RamView,
    pub chips: FakeChips,
    pub hypervisor: Arc<Fake>,
    pub bar: u64,
    made_available: u16,
    used: u16,
}

impl Machine {
    pub fn new(device: Box<dyn VirtioDevice>) -> Self {
        Self::of(Device::Here(device))
    }

    pub fn of(device: Device) -> Self {
        Self::with_thread("test", device)
    }

    /// The same, with a name for the thread of the device by which a test finds it.
    pub fn with_thread(thread: &str, device: Device) -> Self {
        let layout = Layout::new(40, RAM_BYTES, 1 << 30).unwrap();
        let mut bars = layout.low_bars();
        let bar = bars.clone().place(BAR_BYTES).unwrap();
        let ram = Arc::new(GuestRam::new("test", RAM_BYTES, false).unwrap());
        let bus = Arc::new(MmioBus::new(Arc::default()));
        bus.reserve(bus::GuestAddress(0), RAM_BYTES, "ram").unwrap();
        let (chips, hypervisor) = (FakeChips::default(), Arc::new(Fake::default()));
        let events: Arc<dyn IoEvents> = Arc::clone(&hypervisor) as _;
        let surroundings = Surroundings {
            bus: &bus,
            bars: &mut bars,
            address_end: layout.address_end,
            ram: &ram,
            controller: &chips.controller(),
            events: &events,
        };
        let function = VirtioFunction::new(3, thread, device, surroundings).unwrap();
        Self {
            function,
            bus,
            ram: ram.view().unwrap(),
            chips,
            hypervisor,
            bar,
            made_available: 0,
            used: 0,
        }
    }

    pub fn load<const N: usize>(&self, structure: Structure, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let address = self.bar + structure.offset() + offset;
        let hit = self.bus.read(bus::GuestAddress(address), &mut bytes);
        assert_eq!(hit.result, Ok(()), "{structure:?} {offset:#x}");
        bytes
    }

    pub fn store(&self, structure: Structure, offset: u64, bytes: &[u8]) {
        let address = self.bar + structure.offset() + offset;
        let hit = self.bus.write(bus::GuestAddress(address), bytes);
        assert_eq!(hit.result, Ok(()), "{structure:?} {offset:#x}");
    }

    /// Stores what `stores` say, wherever that is, and then gives the function its addresses back.
    pub fn store_all(&self, stores: &[Store]) {
        for &(config, offset, width, value) in stores {
            let bytes = &value.to_le_bytes()[..width];
            if config {
                let offset = (offset & 0xff) as u8 & !3;
                self.function.write_config(offset, &bytes[..width.min(4)]);
            } else {
                let address = bus::GuestAddress(self.bar + offset);
                let _ = self.bus.write(address, bytes);
            }
        }
        let base = self.bar as u32;
        self.function.write_config(0x10, &base.to_le_bytes());
        let command = COMMAND_MEMORY.to_le_bytes();
        self.function.write_config(4, &command);
    }

    pub fn config<const N: usize>(&self, offset: u8) -> [u8; N] {
        let mut bytes = [0; N];
        self.function.read_config(offset, &mut bytes);
        bytes
    }

    pub fn status(&self) -> u8 {
        let [status] = self.load(Structure::Common, 0x14);
        status
    }

    pub fn set_status(&self, status: u8) {
        self.store(Structure::Common, 0x14, &[status]);
    }

    pub fn features(&self) -> u64 {
        let half = |select: u32| {
            self.store(Structure::Common, 0, &select.to_le_bytes());
            u64::from(u32::from_le_bytes(self.load(Structure::Common, 4)))
        };
        half(0) | half(1) << 32
    }

    /// Resets the device and asks it for the features `features`. Returns whether the device
    /// accepts them.
    pub fn negotiate(&mut self, features: u64) -> bool {
        self.set_status(0);
        (self.made_available, self.used) = (0, 0);
        self.ram
            .memory()
            .write_slice(&[0; 0x3000], GuestAddress(DESCRIPTORS))
            .unwrap();
        self.set_status(1);
        self.set_status(3);
        for (select, half) in [(0u32, features as u32), (1, (features >> 32) as u32)] {
            self.store(Structure::Common, 8, &select.to_le_bytes());
            self.store(Structure::Common, 0xc, &half.to_le_bytes());
        }
        self.set_status(0xb);
        self.status() == 0xb
    }

    pub fn place_queue(&self, size: u16, descriptors: u64, driver: u64, device: u64) {
        self.place_queue_of(0, size, [descriptors, driver, device]);
    }

    pub fn select_queue(&self, queue: u16) {
        self.store(Structure::Common, 0x16, &queue.to_le_bytes());
    }

    pub fn place_queue_of(&self, queue: u16, size: u16, [descriptors, driver, device]: [u64; 3]) {
        self.select_queue(queue);
        self.store(Structure::Common, 0x18, &size.to_le_bytes());
        for (offset, address) in [(0x20, descriptors), (0x28, driver), (0x30, device)] {
            self.store(Structure::Common, offset, &(address as u32).to_le_bytes());
            let high = (address >> 32) as u32;
            self.store(Structure::Common, offset + 4, &high.to_le_bytes());
        }
        self.store(Structure::Common, 0x1c, &1u16.to_le_bytes());
    }

    /// Does all that a driver does before its first request: asks for `features`, places the queue
    /// in guest memory and starts the device.
    pub fn start(&mut self, features: u64) {
        assert!(self.negotiate(features | VERSION_1));
        self.place_queue(QUEUE_SIZE, DESCRIPTORS, DRIVER_RING, DEVICE_RING);
        self.set_status(RUNNING);
        assert_eq!(self.status(), RUNNING);
    }

    /// Gives the device a request whose buffers are `ranges`, and notifies it. Each range consists
    /// of a guest-physical address, a length in bytes, and whether the device writes to it.
    pub fn submit(&mut self, ranges: &[(u64, u32, bool)]) {
        let last = ranges.len() as u16 - 1;
        for (index, &(address, length, writable)) in (0..).zip(ranges) {
            let next = if index < last { NEXT } else { 0 };
            let flags = next | if writable { WRITE } else { 0 };
            write_descriptor(
                &self.ram,
                DESCRIPTORS,
                index,
                (address, length, flags, index + 1),
            );
        }
        self.offer(0);
        self.notify();
    }

    /// Adds the request whose first descriptor has the index `head` to the driver's ring, without
    /// notifying the device.
    pub fn offer(&mut self, head: u16) {
        let memory = self.ram.memory();
        let entry = DRIVER_RING + 4 + 2 * u64::from(self.made_available % QUEUE_SIZE);
        memory.write_obj(head, GuestAddress(entry)).unwrap();
        self.made_available = self.made_available.wrapping_add(1);
        self.set_index(self.made_available);
    }

    /// Stores `index`, which may be invalid, to guest memory as the index of the driver's ring.
    pub fn set_index(&self, index: u16) {
        let at = GuestAddress(DRIVER_RING + 2);
        self.ram.memory().write_obj(index, at).unwrap();
    }

    pub fn notify(&self) {
        self.store(Structure::Notify, 0, &[0; 2]);
    }

    /// Enables MSI-X (or disables it), in the message control register of its capability.
    pub fn enable_messages(&self, enable: bool) {
        let [mut at] = self.config(0x34);
        while let [id, next] = self.config(at)
            && id != CAPABILITY_MSIX
        {
            at = next;
        }
        let control = if enable { 0x80 } else { 0 };
        self.function.write_config(at + 2, &[0, control]);
    }

    /// Waits until the device has answered the next request. Returns the index of the request's
    /// first descriptor, and the number of bytes that the device has written.
    pub fn answer(&mut self) -> (u32, u32) {
        wait_for("an answer", || {
            let index: u16 = self.read_ram(DEVICE_RING + 2);
            index != self.used
        });
        let entry = DEVICE_RING + 4 + 8 * u64::from(self.used % QUEUE_SIZE);
        self.used = self.used.wrapping_add(1);
        (self.read_ram(entry), self.read_ram(entry + 4))
    }

    pub fn wait_for_status(&self, status: u8) {
        wait_for("a device status", || self.status() == status);
    }

    pub fn read_ram<T: vm_memory::ByteValued>(&self, address: u64) -> T {
        self.ram.memory().read_obj(GuestAddress(address)).unwrap()
    }
}

/// Waits until `come` returns true, which another thread brings about. Panics after a minute, with
/// `what` as the name of what did not come.
pub fn wait_for(what: &str, mut come: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !come() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A store of a guest that has lost its way: to configuration space or else to the BAR, the offset,
/// the number of bytes, and the value.
pub type Store = (bool, u64, usize, u64);

/// Generates stores that find registers often.
pub fn store_anywhere() -> impl Strategy<Value = Store> {
    let offset = prop_oneof![
        4 => 0u64..0x40,
        1 => (0u64..6, 0u64..0x20).prop_map(|(page, offset)| page * 0x1000 + offset),
        1 => 0u64..BAR_BYTES,
    ];
    let value = prop_oneof![
        Just(0u64),
        Just(u64::MAX),
        0u64..0x100,
        any::<u64>(),
        prop::sample::select(vec![DESCRIPTORS, DRIVER_RING, DEVICE_RING]),
    ];
    let width = prop::sample::select(vec![1usize, 2, 4, 8]);
    (prop::bool::weighted(0.2), offset, width, value)
}
