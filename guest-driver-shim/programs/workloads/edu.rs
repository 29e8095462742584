//! A driver and tests for QEMU's educational device, which is passed through to the guest.
//!
//! The device's 32-bit registers are in BAR 0 ("EDU device", QEMU's documentation, specs/edu),
//! which is mapped in the guest. So accesses to the registers are no exits.

mod exercise;

use causeway_shim::Window;

use crate::Required;

pub use exercise::{DmaMemory, PASSES, accesses, dma, factorials, interrupt, introduce};

/// Vendor and device ID.
pub const IDS: (u16, u16) = (0x1234, 0x11e8);
/// Number of the BAR with the registers.
pub const BAR: usize = 0;
/// Size of a page for DMA, in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Most bytes of a transfer. The device has a page of memory, but QEMU (version 9 and earlier at
/// least) treats a transfer that reaches the page's end as one beyond the end, and aborts.
pub const TRANSFER_BYTES: usize = PAGE_BYTES - 8;

/// The value of [`Edu::identity`], with version 1.0 in the upper half.
const IDENTITY: u32 = 0x0100_00ed;
/// Address of the device's memory for its DMA engine.
const BUFFER: u32 = 0x4_0000;

const REG_IDENTITY: u64 = 0x00;
const REG_LIVENESS: u64 = 0x04;
const REG_FACTORIAL: u64 = 0x08;
const REG_STATUS: u64 = 0x20;
const REG_INTERRUPT_STATUS: u64 = 0x24;
const REG_INTERRUPT_RAISE: u64 = 0x60;
const REG_INTERRUPT_ACKNOWLEDGE: u64 = 0x64;
const REG_DMA_SOURCE: u64 = 0x80;
const REG_DMA_TARGET: u64 = 0x88;
const REG_DMA_BYTES: u64 = 0x90;
const REG_DMA_COMMAND: u64 = 0x98;

const STATUS_COMPUTING: u32 = 1;
const DMA_START: u32 = 1;
const DMA_TO_MEMORY: u32 = 2;

/// Accesses 32-bit registers of a device.
pub trait Registers {
    /// Loads the register at `offset`.
    fn load(&self, offset: u64) -> u32;
    /// Stores `value` to the register at `offset`.
    fn store(&self, offset: u64, value: u32);
}

impl Registers for Window {
    fn load(&self, offset: u64) -> u32 {
        self.load_u32(offset as usize).required("a register")
    }

    fn store(&self, offset: u64, value: u32) {
        self.store_u32(offset as usize, value)
            .required("a register");
    }
}

/// QEMU's educational device, with its registers.
#[derive(Debug)]
pub struct Edu<R>(pub R);

impl<R: Registers> Edu<R> {
    /// Returns the identity register, which reads as version 1.0 of this device.
    pub fn identity(&self) -> u32 {
        self.0.load(REG_IDENTITY)
    }

    /// Stores `value` to the liveness register, and returns what the register reads as then: it
    /// must be the complement of `value`.
    pub fn liveness(&self, value: u32) -> u32 {
        self.0.store(REG_LIVENESS, value);
        self.0.load(REG_LIVENESS)
    }

    /// Makes the device compute n! (modulo 2^32) and returns the result.
    pub fn factorial(&self, n: u32) -> u32 {
        self.0.store(REG_FACTORIAL, n);
        self.wait_while(REG_STATUS, STATUS_COMPUTING);
        self.0.load(REG_FACTORIAL)
    }

    /// Makes the device copy `bytes` bytes of guest memory to its own. A transfer takes a tenth of
    /// a second.
    pub fn read_memory(&self, address: u32, bytes: u32) {
        self.transfer(address, BUFFER, bytes, DMA_START);
    }

    /// Makes the device copy `bytes` bytes of its own memory to guest memory.
    pub fn write_memory(&self, address: u32, bytes: u32) {
        self.transfer(BUFFER, address, bytes, DMA_START | DMA_TO_MEMORY);
    }

    /// Makes the device raise an interrupt. `value` stays in its interrupt status until it is
    /// acknowledged.
    pub fn raise(&self, value: u32) {
        self.0.store(REG_INTERRUPT_RAISE, value);
    }

    /// Returns the interrupt status, which is zero without an interrupt.
    pub fn interrupt_status(&self) -> u32 {
        self.0.load(REG_INTERRUPT_STATUS)
    }

    /// Acknowledges the interrupts in `value`.
    pub fn acknowledge(&self, value: u32) {
        self.0.store(REG_INTERRUPT_ACKNOWLEDGE, value);
    }

    fn transfer(&self, source: u32, target: u32, bytes: u32, command: u32) {
        assert!(bytes as usize <= TRANSFER_BYTES, "{bytes} bytes");
        self.0.store(REG_DMA_SOURCE, source);
        self.0.store(REG_DMA_TARGET, target);
        self.0.store(REG_DMA_BYTES, bytes);
        self.0.store(REG_DMA_COMMAND, command);
        self.wait_while(REG_DMA_COMMAND, DMA_START);
    }

    fn wait_while(&self, register: u64, bit: u32) {
        while self.0.load(register) & bit != 0 {
            core::hint::spin_loop();
        }
    }
}
