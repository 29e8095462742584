//! How the driver reaches a device: the seam between it and the place where it runs.

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

/// How waits sleep where a device is reached, once they have looked often enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeping {
    /// In the device, by the control message `wait`: it holds up the CPU that sends it, and the
    /// control area. For a guest that has nothing else to do with either.
    InDevice,
    /// By [`Transport::sleep`], again and again, for longer and longer.
    ByTime,
    /// By [`Transport::sleep`], which the interrupt ends that was asked for by the control message
    /// `notify`.
    UntilInterrupt,
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
    /// Has a part of BAR 2 be usable before it is touched for the first time, where to have all of
    /// it usable from the beginning would cost too much. False if that cannot be.
    fn reach(&self, offset: u64, bytes: u64) -> bool {
        let _ = (offset, bytes);
        true
    }
    /// Stores to doorbell `index` of BAR 4.
    fn ring_doorbell(&self, index: u32);

    /// How waits sleep. The same at each call, or nearly so: a wait asks when it begins to sleep.
    fn sleeping(&self) -> Sleeping {
        Sleeping::InDevice
    }

    /// Sleeps for `limit_ns` nanoseconds, or for less, and says how long it was. Called by any
    /// thread at any time, but never where [`Self::sleeping`] says that waits sleep in the device.
    ///
    /// With [`Sleeping::UntilInterrupt`], an interrupt that is or becomes pending ends the sleep of
    /// all threads, and has been acknowledged (register `InterruptStatus`) when it does. Which
    /// fence it was for, they find out by looking.
    fn sleep(&self, limit_ns: u64) -> u64 {
        limit_ns
    }
}
