//! How the driver reaches a device.

use causeway_protocol::registers::Register;

use crate::window::Window;

/// Memory for control messages that the device can read and write.
#[derive(Clone, Copy, Debug)]
pub struct ControlArea {
    /// The memory; its size bounds the batches.
    pub window: Window,
    /// Its guest-physical address; 8-byte aligned. The memory is contiguous from there.
    /// [`CONTROL_IN_WINDOW`](causeway_protocol::registers::CONTROL_IN_WINDOW) if it is the client's
    /// control window.
    pub address: u64,
}

/// How a wait sleeps after it has looked at its fence often enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeping {
    /// In the device, by the control message `wait`. It blocks the CPU that sends it, and the
    /// control area: for a guest that needs neither meanwhile.
    InDevice,
    /// By [`Transport::sleep`], for longer and longer times.
    ByTime,
    /// By [`Transport::sleep`], until the interrupt that the control message `notify` asks for.
    UntilInterrupt,
}

/// A Causeway device whose BARs are mapped.
pub trait Transport: Sync {
    /// Loads a register of BAR 0. This is an exit.
    fn read_register(&self, register: Register) -> u32;
    /// Stores to a register of BAR 0. This is an exit.
    fn write_register(&self, register: Register, value: u32);
    /// Returns the memory through which control messages go.
    fn control_area(&self) -> ControlArea;
    /// Returns BAR 2. Holes in it may be accessed: they read all-ones.
    fn aperture(&self) -> Window;
    /// Makes a part of BAR 2 usable before it is accessed for the first time. Returns false if the
    /// part cannot be mapped. A transport that maps all of BAR 2 at once need not implement it.
    fn reach(&self, offset: u64, bytes: u64) -> bool {
        let _ = (offset, bytes);
        true
    }
    /// Stores to doorbell `index` of BAR 4.
    fn ring_doorbell(&self, index: u32);

    /// Returns how waits sleep. A wait asks when it begins to sleep.
    fn sleeping(&self) -> Sleeping {
        Sleeping::InDevice
    }

    /// Sleeps for at most `limit_ns` nanoseconds and returns how long it slept. Any thread may call
    /// it at any time, except where [`Self::sleeping`] is [`Sleeping::InDevice`].
    ///
    /// With [`Sleeping::UntilInterrupt`], a pending interrupt ends the sleep of all threads and is
    /// acknowledged (register `InterruptStatus`). Each thread then looks whether its fence has the
    /// value.
    fn sleep(&self, limit_ns: u64) -> u64 {
        limit_ns
    }
}
