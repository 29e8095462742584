//! How the driver reaches a device: the seam between it and the place where it runs.

use causeway_protocol::registers::Register;

use crate::window::Window;

/// Memory for control messages that the device can read and write.
#[derive(Clone, Copy, Debug)]
pub struct ControlArea {
    /// The memory; its size bounds the batches.
    pub window: Window,
    /// Its guest-physical address; 8-byte aligned. The memory is contiguous from there.
    pub address: u64,
}

/// A Causeway device that has been found and mapped.
pub trait Transport: Sync {
    /// Loads a register of BAR 0. This is an exit.
    fn read_register(&self, register: Register) -> u32;
    /// Stores to a register of BAR 0. This is an exit.
    fn write_register(&self, register: Register, value: u32);
    /// Where control messages go.
    fn control_area(&self) -> ControlArea;
    /// BAR 2. Holes in it may be touched: they read all-ones.
    fn aperture(&self) -> Window;
    /// Stores to doorbell `index` of BAR 4.
    fn ring_doorbell(&self, index: u32);
}
