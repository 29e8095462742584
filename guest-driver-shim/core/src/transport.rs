//! How the driver reaches a device.

use causeway_protocol::registers::Register;

use crate::window::Window;

/// Memory for control messages that the device can read and write.
#[derive(Clone, Copy, Debug)]
pub struct ControlArea {
    /// The memory. Its size limits the size of a batch.
    pub window: Window,
    /// Guest-physical address of the memory, which is contiguous from there; a multiple of 8.
    /// [`CONTROL_IN_WINDOW`](causeway_protocol::registers::CONTROL_IN_WINDOW) if the memory is the
    /// client's control window.
    pub address: u64,
}

/// How a wait sleeps after it has looked at its fence often enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeping {
    /// By the control message `wait`, in the device. It blocks the CPU that sends it and the
    /// control area, so it is for guests that need neither meanwhile.
    InDevice,
    /// By [`Transport::sleep`], for a time that grows with each look at the fence.
    ByTime,
    /// By [`Transport::sleep`], until the interrupt that the control message `notify` requests.
    UntilInterrupt,
}

/// The way to a Causeway device whose BARs are mapped: registers, control area, aperture,
/// doorbells.
pub trait Transport: Sync {
    /// Loads a register of BAR 0. This is an exit.
    fn read_register(&self, register: Register) -> u32;
    /// Stores to a register of BAR 0. This is an exit.
    fn write_register(&self, register: Register, value: u32);
    /// Returns the memory in which control messages are sent.
    fn control_area(&self) -> ControlArea;
    /// Returns BAR 2. An access to a hole in it, where nothing is mapped, reads all-ones.
    fn aperture(&self) -> Window;
    /// Makes `bytes` bytes from `offset` of BAR 2 accessible before they are used for the first
    /// time. Returns false if they cannot be mapped. A transport that maps all of BAR 2 at once
    /// need not implement this.
    fn reach(&self, offset: u64, bytes: u64) -> bool {
        let _ = (offset, bytes);
        true
    }
    /// Rings doorbell number `index` of BAR 4.
    fn ring_doorbell(&self, index: u32);

    /// Returns how waits sleep. A wait calls this when it begins to sleep.
    fn sleeping(&self) -> Sleeping {
        Sleeping::InDevice
    }

    /// Sleeps for at most `limit_ns` nanoseconds, and returns for how long it slept, in
    /// nanoseconds. Any thread may call it at any time, except where [`Self::sleeping`] is
    /// [`Sleeping::InDevice`].
    ///
    /// With [`Sleeping::UntilInterrupt`], a pending interrupt ends the sleep of all threads and is
    /// acknowledged (register `InterruptStatus`). Each thread then checks whether its fence has the
    /// value.
    fn sleep(&self, limit_ns: u64) -> u64 {
        limit_ns
    }
}
