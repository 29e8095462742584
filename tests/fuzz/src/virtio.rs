//! Queues of a disk: whatever a guest writes there, the device answers or wants a reset, writes
//! nothing where it was not allowed to, and serves the next driver.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_vmm::bus::{self, MmioBus};
use causeway_vmm::hypervisor::IoEvents;
use causeway_vmm::interrupts::{InterruptChips, InterruptController, MsiMessage};
use causeway_vmm::memory::GuestRam;
use causeway_vmm::pci::Layout;
use causeway_vmm::virtio::{Block, Device, DiskImage, Surroundings, VirtioFunction};
use vmm_sys_util::eventfd::EventFd;

/// Bytes that describe one descriptor of an input.
pub const DESCRIPTOR_BYTES: usize = 8;
/// Entries of the queue.
pub const QUEUE_SIZE: u16 = 16;

const RAM_BYTES: u64 = 8 << 20;
const DISK_BYTES: u64 = 64 << 10;
const DESCRIPTORS: u64 = 0x10000;
const DRIVER_RING: u64 = 0x11000;
const DEVICE_RING: u64 = 0x12000;
/// What descriptors name most often: headers of requests, ranges, data and tables.
const DATA: u64 = 0x20000;
/// Behind everything that a descriptor of an input can name in RAM, but for the odd ones.
const WITNESS: u64 = 0x40_0000;
const WITNESS_BYTES: [u8; 16] = *b"not for a device";
const NEEDS_RESET: u8 = 0x40;

struct NoEvents;

impl IoEvents for NoEvents {
    fn register(&self, _: u64, _: &EventFd) -> io::Result<()> {
        Ok(())
    }
    fn unregister(&self, _: u64, _: &EventFd) -> io::Result<()> {
        Ok(())
    }
}

struct NoChips;

impl InterruptChips for NoChips {
    fn set_messages(&self, _: &BTreeMap<u32, MsiMessage>) -> io::Result<()> {
        Ok(())
    }
    fn connect(&self, _: &EventFd, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn connect_resampled(&self, _: &EventFd, _: &EventFd, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn disconnect(&self, _: &EventFd, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn set_level(&self, _: u32, _: bool) -> io::Result<()> {
        Ok(())
    }
}

/// A disk in a guest that one driver after the other uses.
pub struct Disk {
    ram: Arc<GuestRam>,
    bus: Arc<MmioBus>,
    bar: u64,
    _function: VirtioFunction,
    _file: File,
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

impl Disk {
    /// A disk of 64 KiB in memory.
    pub fn new() -> Self {
        let ram = Arc::new(GuestRam::new("fuzz", RAM_BYTES, false).expect("8 MiB of memory"));
        let bus = Arc::new(MmioBus::new(Arc::default()));
        let layout = Layout::new(40, RAM_BYTES, 1 << 30).expect("room for a function");
        let mut bars = layout.low_bars();
        let bar = bars.clone().place(0x8000).expect("room for a BAR");
        let (image, file) = image();
        let surroundings = Surroundings {
            bus: &bus,
            bars: &mut bars,
            address_end: layout.address_end,
            ram: &ram,
            controller: &InterruptController::new(Box::new(NoChips)),
            events: &(Arc::new(NoEvents) as Arc<dyn IoEvents>),
        };
        let block = Box::new(Block::new(Arc::new(image)));
        let function =
            VirtioFunction::new(3, "fuzz", Device::Here(block), surroundings).expect("a thread");
        ram.write(WITNESS, &WITNESS_BYTES).expect("RAM");
        Self {
            ram,
            bus,
            bar,
            _function: function,
            _file: file,
        }
    }

    /// Starts a driver, has it make requests of these bytes, and waits until they are answered or
    /// the device wants a reset. The first are descriptors, and what follows is data. True if all
    /// were answered.
    pub fn feed(&self, bytes: &[u8]) -> bool {
        self.start();
        let table = bytes.chunks_exact(DESCRIPTOR_BYTES).take(QUEUE_SIZE.into());
        for (at, compact) in (DESCRIPTORS..).step_by(16).zip(table) {
            self.write(at, &descriptor(compact));
        }
        let data = bytes.get(DESCRIPTOR_BYTES * usize::from(QUEUE_SIZE)..);
        let data = data.unwrap_or_default();
        self.write(DATA, &data[..data.len().min(0x1000)]);
        let heads = bytes.first().map_or(1, |byte| u16::from(byte % 4) + 1);
        for head in 0..heads {
            self.write(
                DRIVER_RING + 4 + 2 * u64::from(head),
                &(head * 4).to_le_bytes(),
            );
        }
        self.write(DRIVER_RING + 2, &heads.to_le_bytes());
        self.store(0x3000, &[0; 2]);
        let answered = self.wait(heads);
        let mut witness = [0; WITNESS_BYTES.len()];
        self.ram.read(WITNESS, &mut witness).expect("RAM");
        assert_eq!(
            witness, WITNESS_BYTES,
            "the device wrote where it was not told to"
        );
        answered
    }

    /// Whether a driver that keeps the rules is served.
    pub fn serves(&self) -> bool {
        self.start();
        // A flush: 16 bytes of header, a byte of status.
        self.write(
            DATA,
            &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xee],
        );
        self.write(DESCRIPTORS, &wide(DATA, 16, 1, 1));
        self.write(DESCRIPTORS + 16, &wide(DATA + 16, 1, 2, 0));
        self.write(DRIVER_RING + 2, &1u16.to_le_bytes());
        self.store(0x3000, &[0; 2]);
        self.wait(1);
        let mut status = [0xff];
        self.ram.read(DATA + 16, &mut status).expect("RAM");
        status == [0]
    }

    /// What a driver does before its first request.
    fn start(&self) {
        self.store(0x14, &[0]);
        self.write(DESCRIPTORS, &[0; 0x3000]);
        self.store(0x14, &[3]);
        for (select, half) in [(0u32, 1 << 9 | 1 << 28 | 1 << 29), (1, 1u32)] {
            self.store(0x08, &select.to_le_bytes());
            self.store(0x0c, &half.to_le_bytes());
        }
        self.store(0x14, &[0xb]);
        self.store(0x18, &QUEUE_SIZE.to_le_bytes());
        for (register, address) in [
            (0x20, DESCRIPTORS),
            (0x28, DRIVER_RING),
            (0x30, DEVICE_RING),
        ] {
            self.store(register, &(address as u32).to_le_bytes());
        }
        self.store(0x1c, &1u16.to_le_bytes());
        self.store(0x14, &[0xf]);
    }

    /// Waits until `requests` requests are answered, or the device wants a reset. True for the
    /// former.
    fn wait(&self, requests: u16) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut index = [0; 2];
            self.ram.read(DEVICE_RING + 2, &mut index).expect("RAM");
            let mut status = [0];
            let _ = self
                .bus
                .read(bus::GuestAddress(self.bar + 0x14), &mut status);
            if status[0] & NEEDS_RESET != 0 {
                return false;
            }
            if u16::from_le_bytes(index) >= requests {
                return true;
            }
            assert!(Instant::now() < deadline, "the device does not answer");
            std::thread::yield_now();
        }
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        let _ = self.bus.write(bus::GuestAddress(self.bar + offset), bytes);
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        self.ram.write(address, bytes).expect("all of it is RAM");
    }
}

/// An image that has a path as long as the file is open.
fn image() -> (DiskImage, File) {
    let memory = rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(memory.expect("a file in memory"));
    file.set_len(DISK_BYTES).expect("64 KiB of memory");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let image = DiskImage::open(Path::new(&path), false).expect("an image");
    (image, file)
}

/// A descriptor from a few bytes: mostly one that makes sense.
fn descriptor(compact: &[u8]) -> [u8; 16] {
    let [page, offset, low, high, flags, next, odd, _] = compact else {
        return [0; 16];
    };
    let near = DATA + u64::from(*page) * 256 + u64::from(*offset);
    let address = match odd {
        0xff => u64::MAX - u64::from(*offset),
        0xfe => RAM_BYTES - u64::from(*offset),
        0xfd => DESCRIPTORS + u64::from(*offset),
        _ => near,
    };
    let length = match odd {
        // The table can be overwritten, but not the driver's index: who would know how many answers
        // to wait for?
        0xfd => u32::from(*low % 64),
        _ if odd % 16 == 15 => u32::MAX - u32::from(*low),
        _ => u32::from_le_bytes([*low, *high & 0x0f, 0, 0]),
    };
    wide(
        address,
        length,
        u16::from(*flags % 8),
        u16::from(*next % (QUEUE_SIZE as u8 + 1)),
    )
}

fn wide(address: u64, length: u32, flags: u16, next: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}
