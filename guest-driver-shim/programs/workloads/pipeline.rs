//! A command buffer whose consumer does not sleep during a measured phase.
//!
//! A consumer without work goes to sleep after some microseconds, and marking a phase takes longer
//! than that. So before a phase, the device gets a packet that waits for a fence: the gate, which
//! the guest releases. The packets of the phase follow behind it, without a doorbell.

use core::fmt;

use causeway_shim::{
    AddressSpace, Buffer, CommandBuffer, Device, Fence, MemoryKind, Patience, WaitError,
};

use crate::Required;

/// A command buffer with two fences: the gate at which the device waits, and the fence that the
/// device releases when work is done.
pub struct Pipeline<'d> {
    /// The command buffer, to which callers write packets.
    pub commands: CommandBuffer<'d>,
    /// Memory with both fences. From [`Self::SCRATCH`] on it is free for other use, such as
    /// timestamps.
    pub memory: Buffer<'d>,
    gate: Fence<'d>,
    done: Fence<'d>,
    armed: u64,
    released: u64,
}

impl fmt::Debug for Pipeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").finish_non_exhaustive()
    }
}

impl<'d> Pipeline<'d> {
    /// Offset in [`Self::memory`] from which the memory is free for other use.
    pub const SCRATCH: u64 = 1024;

    /// Returns a pipeline whose command buffer has `units` units.
    pub fn new(device: &'d Device<'d>, space: &AddressSpace<'d>, units: u64) -> Self {
        let memory =
            Buffer::new(device, space, 4096, MemoryKind::Host).required("memory for fences");
        let commands = CommandBuffer::new(space, units).required("a command buffer");
        let gate = memory.fence(0).required("the gate");
        let done = memory.fence(64).required("the fence");
        // The first access to the page, so that no phase has the page fault.
        gate.store(0);
        Self {
            commands,
            memory,
            gate,
            done,
            armed: 0,
            released: 0,
        }
    }

    /// Makes the device wait at the gate. This rings the doorbell if the device sleeps, so callers
    /// do it before a phase.
    pub fn arm(&mut self) {
        self.armed += 1;
        self.commands
            .acquire(&self.gate, self.armed)
            .required("arming the gate");
        self.commands.submit();
    }

    /// Lets the device pass all gates at which it was told to wait.
    pub fn open(&self) {
        self.gate.store(self.armed);
    }

    /// Lets the device pass all gates at which it was told to wait, except the last `closed`.
    pub fn open_but(&self, closed: u64) {
        self.gate.store(self.armed.saturating_sub(closed));
    }

    /// Makes the device release the fence after the packets written so far, and publishes all
    /// packets. Returns the value that the fence gets.
    pub fn finish(&mut self) -> u64 {
        self.released += 1;
        self.commands
            .release(&self.done, self.released)
            .required("releasing the fence");
        self.commands.submit();
        self.released
    }

    /// Waits until the fence has a value that [`Self::finish`] has returned.
    pub fn wait(&self, value: u64, patience: Patience) -> Result<(), WaitError> {
        self.commands.wait(&self.done, value, patience)
    }

    /// Publishes the packets written so far and waits until they are done. The wait may sleep.
    pub fn drain(&mut self) {
        let value = self.finish();
        self.wait(value, Patience::default())
            .required("waiting for the device");
    }
}
