//! QEMU's educational device (docs/specs/edu.rst in QEMU).

use std::error::Error;
use std::thread;
use std::time::Duration;

use causeway_host_vfio::{Device, InterruptKind, Mapping, RegionIndex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vmm_sys_util::eventfd::EventFd;

use crate::touch::Touch;

/// Its registers.
pub const BAR: RegionIndex = RegionIndex::Bar(0);
/// Bytes of [`BAR`].
pub const BAR_BYTES: u64 = 1 << 20;
/// Inverts what is written.
pub const LIVENESS: u64 = 0x04;
const IDENTITY: u64 = 0x00;
const FACTORIAL: u64 = 0x08;
const STATUS: u64 = 0x20;
const STATUS_COMPUTING: u32 = 1;
const INTERRUPT_STATUS: u64 = 0x24;
const INTERRUPT_RAISE: u64 = 0x60;
const INTERRUPT_ACKNOWLEDGE: u64 = 0x64;
const DMA_SOURCE: u64 = 0x80;
const DMA_DESTINATION: u64 = 0x88;
const DMA_BYTES: u64 = 0x90;
const DMA_COMMAND: u64 = 0x98;
const DMA_START: u32 = 1;
const DMA_TO_MEMORY: u32 = 2;
/// Where its own memory begins, for DMA.
const OWN_MEMORY: u64 = 0x4_0000;
/// Bytes of it that are used: QEMU (7.2) ends with an error when a transfer reaches the end of the
/// 4 KiB.
pub const OWN_BYTES: u32 = 4088;

pub type Outcome = Result<(), Box<dyn Error>>;

/// The registers, by a mapping.
pub struct Edu {
    pub device: Device,
    registers: Mapping,
}

impl Edu {
    pub fn new(device: Device) -> Result<Self, Box<dyn Error>> {
        let registers = device.map(BAR, 0, BAR_BYTES)?;
        Ok(Self { device, registers })
    }

    /// By the kernel and by the mapping, which must agree.
    pub fn identity(&self) -> Result<u32, Box<dyn Error>> {
        let identity = self.device.read_u32(BAR, IDENTITY)?;
        (identity == self.registers.load_u32(IDENTITY)?)
            .then_some(identity)
            .ok_or_else(|| "kernel and mapping see different registers".into())
    }

    pub fn factorial(&self, n: u32) -> Result<u32, Box<dyn Error>> {
        self.registers.store_u32(FACTORIAL, n)?;
        while self.registers.load_u32(STATUS)? & STATUS_COMPUTING != 0 {
            thread::yield_now();
        }
        Ok(self.registers.load_u32(FACTORIAL)?)
    }

    /// Has the device fetch from a device address what fits into its own memory.
    pub fn fetch(&self, iova: u64) -> Outcome {
        self.transfer(iova, OWN_MEMORY, 0)
    }

    /// Has the device store its own memory at a device address.
    pub fn store(&self, iova: u64) -> Outcome {
        self.transfer(OWN_MEMORY, iova, DMA_TO_MEMORY)
    }

    fn transfer(&self, from: u64, to: u64, direction: u32) -> Outcome {
        self.registers.store_u32(DMA_SOURCE, from as u32)?;
        self.registers.store_u32(DMA_DESTINATION, to as u32)?;
        self.registers.store_u32(DMA_BYTES, OWN_BYTES)?;
        let command = DMA_START | direction;
        self.registers.store_u32(DMA_COMMAND, command)?;
        while self.registers.load_u32(DMA_COMMAND)? & DMA_START != 0 {
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Has the device interrupt `times` times by messages, and waits for each.
    pub fn message(&self, times: u32) -> Outcome {
        let event = EventFd::new(0)?;
        self.device
            .set_vectors(InterruptKind::Msi, &[Some(&event)])?;
        for _ in 0..times {
            self.raise(&event)?;
        }
        Ok(self.device.disable_interrupts()?)
    }

    /// As [`Self::message`], by the pin. The kernel unmasks it by an event.
    pub fn pin(&self, times: u32) -> Outcome {
        let (event, unmask) = (EventFd::new(0)?, EventFd::new(0)?);
        self.device.set_intx(&event, Some(&unmask))?;
        for _ in 0..times {
            self.raise(&event)?;
            unmask.write(1)?;
        }
        Ok(self.device.disable_interrupts()?)
    }

    fn raise(&self, event: &EventFd) -> Outcome {
        self.registers.store_u32(INTERRUPT_RAISE, 0x40)?;
        wait(event)?;
        event.read()?;
        let status = self.registers.load_u32(INTERRUPT_STATUS)?;
        self.registers.store_u32(INTERRUPT_ACKNOWLEDGE, status)?;
        (status == 0x40)
            .then_some(())
            .ok_or_else(|| format!("interrupt status {status:#x}").into())
    }
}

/// Waits until a descriptor is readable.
pub fn wait(file: &impl std::os::fd::AsRawFd) -> Outcome {
    // SAFETY: the descriptor is open while it is borrowed.
    #[allow(unsafe_code, reason = "rustix polls only files that implement AsFd")]
    let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(file.as_raw_fd()) };
    let mut files = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    match poll(&mut files, Some(&limit))? {
        0 => Err("nothing came within 20 s".into()),
        _ => Ok(()),
    }
}
