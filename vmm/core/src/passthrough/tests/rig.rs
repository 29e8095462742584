//! A guest with one device, and what is below and above it.

use std::io;
use std::sync::Arc;

use causeway_host_vfio::fake::{FakeHardware, FakeTranslation};
use causeway_host_vfio::{Area, Container, Device, InterruptKind, RegionIndex, VfioDeviceFd};

use crate::bus::{GuestAddress, Hit, MmioBus};
use crate::hypervisor::MemorySlots;
use crate::hypervisor::fake::Fake;
use crate::interrupts::fake::FakeChips;
use crate::memory::GuestRam;
use crate::passthrough::{
    DeviceSource, PassThroughError, PassthroughDevices, SlotNumbers, Surroundings,
};
use crate::pci::{ConfigAccess, Devices, Layout, host_bridge};

pub const RAM_BYTES: u64 = 8 << 20;
pub const ADDRESS: &str = "0000:00:03.0";

// Offsets of capabilities.
pub const POWER: u8 = 0x40;
pub const MSI: u8 = 0x48;
pub const EXPRESS: u8 = 0x60;
pub const VENDOR: u8 = 0xa0;
pub const VENDOR_BYTES: u8 = 0x12;
pub const MSIX: u8 = 0xb4;
pub const PRODUCT_DATA: u8 = 0xc0;
pub const ADVANCED: u8 = 0xc8;

pub const VECTORS: u16 = 8;
pub const MESSAGES: u32 = 4;
/// Offsets in BAR 2 of the MSI-X table and of the pending bits, each of which has a page of its
/// own.
pub const TABLE: u64 = 0x2000;
pub const PENDING: u64 = 0x4000;

pub const BAR0_BYTES: u64 = 1 << 20;
pub const BAR2_BYTES: u64 = 64 << 10;
pub const BAR5_BYTES: u64 = 256;

/// What a device has in its configuration space: offset, and bytes.
const CONFIG: [(u64, &[u8]); 12] = [
    // 1234:11e8, memory decoding; capabilities; revision 0x10 of class 0x00ff00; one of several
    // functions.
    (0x00, &[0x34, 0x12, 0xe8, 0x11, 0x02, 0, 0x10, 0]),
    (0x08, &[0x10, 0, 0xff, 0, 0x10, 0x20, 0x80, 0x80]),
    // BAR 2 of 64 bits, prefetchable; BAR 4 of ports.
    (0x18, &[0x0c, 0, 0, 0, 0, 0, 0, 0, 0x01]),
    (0x2c, &[0xf4, 0x1a, 0, 0x11, 0x01, 0, 0xff, 0xff, POWER]),
    (0x3c, &[0x0b, 0x02, 3, 4]),
    (POWER as u64, &[0x01, MSI, 0xff, 0xff, 0x00, 0x81]),
    // Four vectors that can be masked, 64-bit addresses.
    (MSI as u64, &[0x05, EXPRESS, 0x84, 0x01]),
    // An endpoint, version 2, that can be reset.
    (
        EXPRESS as u64,
        &[0x10, VENDOR, 0x02, 0, 0xc0, 0x8f, 0, 0x10, 0x10, 0x28, 0x05],
    ),
    (VENDOR as u64, &[0x09, MSIX, VENDOR_BYTES, 1, 2, 3, 4, 5]),
    (
        MSIX as u64,
        &[0x11, PRODUCT_DATA, 7, 0, 0x02, 0x20, 0, 0, 0x02, 0x40, 0, 0],
    ),
    (PRODUCT_DATA as u64, &[0x03, ADVANCED, 0xff, 0xff]),
    (ADVANCED as u64, &[0x13, 0, 6, 3]),
];

/// Returns the fake device that the tests pass through.
pub fn hardware() -> FakeHardware {
    let fake = FakeHardware::new().unwrap();
    let fake = fake.with_region(RegionIndex::Bar(0), BAR0_BYTES).unwrap();
    let fake = fake.with_region(RegionIndex::Bar(2), BAR2_BYTES).unwrap();
    let fake = fake.with_region(RegionIndex::Bar(4), 256).unwrap();
    let fake = fake.with_region(RegionIndex::Bar(5), BAR5_BYTES).unwrap();
    let fake = fake.with_region(RegionIndex::Rom, 4096).unwrap();
    let fake = fake.with_change(RegionIndex::Bar(5), |region| region.mappable = Vec::new());
    for (offset, bytes) in CONFIG {
        fake.poke(RegionIndex::Config, offset, bytes).unwrap();
    }
    fake.with_interrupts(InterruptKind::Intx, 1)
        .with_interrupts(InterruptKind::Msi, MESSAGES)
        .with_interrupts(InterruptKind::Msix, VECTORS.into())
}

/// A source of the fake devices `hardware` for a VM.
#[derive(Debug)]
pub struct Source {
    pub hardware: Vec<Arc<FakeHardware>>,
    pub translation: Arc<FakeTranslation>,
}

impl DeviceSource for Source {
    fn open(
        &self,
        _: &dyn Fn() -> io::Result<VfioDeviceFd>,
    ) -> Result<(Arc<Container>, Vec<Device>), PassThroughError> {
        let devices = self.hardware.iter();
        let devices = devices.map(|fake| fake.device(ADDRESS.parse().unwrap()));
        Ok((
            self.translation.container(),
            devices.collect::<Result<_, _>>()?,
        ))
    }
}

pub struct Rig {
    pub fake: Arc<FakeHardware>,
    pub translation: Arc<FakeTranslation>,
    pub passed: PassthroughDevices,
    pub function: Arc<dyn ConfigAccess>,
    pub bus: Arc<MmioBus>,
    pub hypervisor: Arc<Fake>,
    pub chips: FakeChips,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(hardware()).unwrap()
    }

    pub fn with(hardware: FakeHardware) -> Result<Self, PassThroughError> {
        let layout = Layout::new(40, RAM_BYTES, 1 << 30).unwrap();
        let layout = layout.with_high_window(RAM_BYTES);
        let ram = Arc::new(GuestRam::new("test", RAM_BYTES, false).unwrap());
        let bus = Arc::new(MmioBus::new(Arc::default()));
        bus.reserve(GuestAddress(0), RAM_BYTES, "ram").unwrap();
        let (chips, hypervisor) = (FakeChips::default(), Arc::new(Fake::default()));
        let slots: Arc<dyn MemorySlots> = Arc::clone(&hypervisor) as _;
        let fake = Arc::new(hardware);
        let translation = Arc::<FakeTranslation>::default();
        let source = Source {
            hardware: vec![Arc::clone(&fake)],
            translation: Arc::clone(&translation),
        };
        let mut devices = Devices::default();
        devices[0] = Some(host_bridge());
        let surroundings = Surroundings {
            bus: &bus,
            low: &mut layout.low_bars(),
            high: &mut layout.high_bars(),
            address_end: layout.address_end,
            ram: &ram,
            controller: &chips.controller(),
            slots: &slots,
            numbers: &mut SlotNumbers::default(),
        };
        let none = || Err(io::ErrorKind::Unsupported.into());
        let passed = PassthroughDevices::new(&source, &mut devices, &none, surroundings)?;
        let function = devices[1].take().expect("the first free place");
        Ok(Self {
            fake,
            translation,
            passed,
            function,
            bus,
            hypervisor,
            chips,
        })
    }

    pub fn config<const N: usize>(&self, offset: u8) -> [u8; N] {
        let mut bytes = [0; N];
        self.function.read_config(offset, &mut bytes);
        bytes
    }

    pub fn config32(&self, offset: u8) -> u32 {
        u32::from_le_bytes(self.config(offset))
    }

    pub fn store(&self, offset: u8, bytes: &[u8]) {
        self.function.write_config(offset, bytes);
    }

    /// Returns the bytes at `offset` of the fake device's own configuration space.
    pub fn own<const N: usize>(&self, offset: u8) -> [u8; N] {
        let mut bytes = [0; N];
        let config = RegionIndex::Config;
        self.fake.peek(config, offset.into(), &mut bytes).unwrap();
        bytes
    }

    /// Returns the guest-physical address that the guest has stored to BAR `index`.
    pub fn bar(&self, index: u8) -> u64 {
        let low = self.config32(0x10 + 4 * index);
        let high = if low & 6 == 4 {
            self.config32(0x14 + 4 * index)
        } else {
            0
        };
        u64::from(high) << 32 | u64::from(low & !0xf)
    }

    pub fn load<const N: usize>(&self, address: u64) -> ([u8; N], Hit) {
        let mut bytes = [0; N];
        let hit = self.bus.read(GuestAddress(address), &mut bytes);
        (bytes, hit)
    }

    pub fn put(&self, address: u64, bytes: &[u8]) -> Hit {
        self.bus.write(GuestAddress(address), bytes)
    }

    /// Returns the guest-physical address and the size in bytes of each memory slot, in order.
    pub fn slots(&self) -> Vec<(u64, u64)> {
        let state = self.hypervisor.state();
        let mut slots: Vec<_> = state
            .slots
            .values()
            .map(|slot| (slot.gpa, slot.bytes))
            .collect();
        slots.sort_unstable();
        slots
    }
}

/// Returns the parts of BAR 2 that get memory slots if the BAR is at guest-physical address `base`:
/// address and size in bytes.
pub fn bar2_slots(base: u64) -> Vec<(u64, u64)> {
    let areas = [
        (0, TABLE),
        (TABLE + 0x1000, 0x1000),
        (PENDING + 0x1000, BAR2_BYTES - PENDING - 0x1000),
    ];
    let areas = areas.map(|(offset, bytes)| Area { offset, bytes });
    areas
        .iter()
        .map(|area| (base + area.offset, area.bytes))
        .collect()
}
