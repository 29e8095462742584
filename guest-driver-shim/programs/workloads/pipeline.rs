//! A command buffer whose consumer is kept awake across a measured phase.
//!
//! A consumer that finds nothing to do goes to sleep after some microseconds, and marking a phase
//! takes longer than that. So a phase is prepared by giving the device something to wait for: a
//! fence that the guest itself releases. The work of the phase is then put behind it, without a
//! doorbell.

use core::fmt;

use causeway_shim::{
    AddressSpace, Buffer, CommandBuffer, Device, Fence, MemoryKind, Patience, WaitError,
};

use crate::Required;

/// A command buffer, the gate it waits at, and the fence that says how far it is.
pub struct Pipeline<'d> {
    /// The command buffer.
    pub commands: CommandBuffer<'d>,
    /// Holds the fences and, from [`Self::SCRATCH`], room for timestamps and the like.
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
    /// Offset into [`Self::memory`] that is free for other use.
    pub const SCRATCH: u64 = 1024;

    /// Returns a pipeline with a ring of `units` units.
    pub fn new(device: &'d Device<'d>, space: &AddressSpace<'d>, units: u64) -> Self {
        let memory =
            Buffer::new(device, space, 4096, MemoryKind::Host).required("memory for fences");
        let commands = CommandBuffer::new(space, units).required("a command buffer");
        let gate = memory.fence(0).required("the gate");
        let done = memory.fence(64).required("the fence");
        // The first touch of the page, so that no phase has it.
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

    /// Has the device wait at the gate. Rings the doorbell if the device sleeps: do it before the
    /// phase.
    pub fn arm(&mut self) {
        self.armed += 1;
        self.commands
            .acquire(&self.gate, self.armed)
            .required("arming the gate");
        self.commands.submit();
    }

    /// Lets the device pass the gates that are armed.
    pub fn open(&self) {
        self.gate.store(self.armed);
    }

    /// Lets the device pass all armed gates but the last `closed`.
    pub fn open_but(&self, closed: u64) {
        self.gate.store(self.armed.saturating_sub(closed));
    }

    /// Has the device release the fence behind what has been written, and makes all of it visible.
    pub fn finish(&mut self) -> u64 {
        self.released += 1;
        self.commands
            .release(&self.done, self.released)
            .required("releasing the fence");
        self.commands.submit();
        self.released
    }

    /// Waits for a value that [`Self::finish`] has returned.
    pub fn wait(&self, value: u64, patience: Patience) -> Result<(), WaitError> {
        self.commands.wait(&self.done, value, patience)
    }

    /// Finishes what has been written and waits for it, sleeping if need be.
    pub fn drain(&mut self) {
        let value = self.finish();
        self.wait(value, Patience::default())
            .required("waiting for the device");
    }
}
