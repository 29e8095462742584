//! How the driver reaches a device.

use causeway_protocol::registers::Register;

use crate::window::Window;

/// Memory in which the guest writes batches of messages, and the device writes the replies.
#[derive(Clone, Copy, Debug)]
pub struct ControlArea {
    /// The memory as the guest's CPU sees it. Its size is the maximum size of a batch.
    pub window: Window,
    /// Guest-physical address of the memory, which must be contiguous; a multiple of 8.
    /// [`CONTROL_IN_WINDOW`](causeway_protocol::registers::CONTROL_IN_WINDOW) if the memory is the
    /// client's control window in the aperture.
    pub address: u64,
}

/// How a wait for a fence sleeps after it has polled the fence without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeping {
    /// By the message `wait`: the device answers when the fence has reached the value. Until then
    /// the CPU that sent the message is blocked, and no other CPU can send messages.
    InDevice,
    /// By [`Transport::sleep`], for a time that grows with each poll of the fence.
    ByTime,
    /// By [`Transport::sleep`], until the interrupt that the message `notify` requested.
    UntilInterrupt,
}

/// How the shim reaches a Causeway device: its registers, control area, aperture and doorbells.
pub trait Transport: Sync {
    /// Loads a register of BAR 0. One exit.
    fn read_register(&self, register: Register) -> u32;
    /// Stores `value` to a register of BAR 0. One exit.
    fn write_register(&self, register: Register, value: u32);
    /// Returns the memory in which the guest writes batches and the device writes replies.
    fn control_area(&self) -> ControlArea;
    /// Returns a window over BAR 2, the aperture. A load from a part where nothing is mapped
    /// returns all-ones.
    fn aperture(&self) -> Window;
    /// Makes the `bytes` bytes at `offset` of BAR 2 accessible; the shim calls this before it uses
    /// them for the first time. Returns false if they cannot be mapped. A transport that maps all
    /// of BAR 2 at once need not implement this method.
    fn reach(&self, offset: u64, bytes: u64) -> bool {
        let _ = (offset, bytes);
        true
    }
    /// Rings doorbell number `index` of BAR 4.
    fn ring_doorbell(&self, index: u32);

    /// Returns how a wait for a fence sleeps. The wait calls this method when it begins to sleep.
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
