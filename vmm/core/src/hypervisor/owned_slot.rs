//! A memory slot together with the memory under it.

use std::io;
use std::sync::Arc;

use super::{MemorySlots, Slot};

/// A memory slot, and the owner of the host memory that the guest sees through it.
///
/// The slot can be added to the hypervisor and deleted many times. Dropping this value deletes the
/// slot and then drops the memory. If the hypervisor does not delete the slot, the memory is
/// leaked: otherwise the guest would see whatever is mapped at these host addresses next.
pub struct OwnedSlot<M> {
    slots: Arc<dyn MemorySlots>,
    slot: Slot,
    added: bool,
    memory: Option<M>,
}

impl<M> OwnedSlot<M> {
    /// Returns a slot through which the guest will see `memory`, at the host addresses in `slot`.
    /// The slot is not in the hypervisor until [`Self::add`] adds it with `slots`. The
    /// guest-physical address in `slot` is ignored: [`Self::add`] sets it.
    ///
    /// # Safety
    /// Until `memory` is dropped, `[slot.host, slot.host + slot.bytes)` stays reserved, and nobody
    /// holds a Rust reference to its content.
    #[allow(unsafe_code)] // The caller answers for the addresses.
    pub unsafe fn new(slots: &Arc<dyn MemorySlots>, slot: Slot, memory: M) -> Self {
        Self {
            slots: Arc::clone(slots),
            slot,
            added: false,
            memory: Some(memory),
        }
    }

    /// Returns the slot's number, addresses and size. The guest-physical address is the one at
    /// which the slot was last added.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Returns the owner of the host memory that the guest sees through the slot; `None` if that
    /// memory was leaked.
    pub fn memory(&self) -> Option<&M> {
        self.memory.as_ref()
    }

    /// Adds the slot to the hypervisor at guest-physical address `gpa`. Does nothing if it was
    /// added before and has not been deleted since.
    ///
    /// # Errors
    /// The hypervisor's error if it refuses the slot, which is then not added.
    #[allow(unsafe_code)] // Gives the guest memory.
    pub fn add(&mut self, gpa: u64) -> io::Result<()> {
        if !self.added {
            self.slot.gpa = gpa;
            // SAFETY: by the contract of `new` the addresses are the memory's, which is dropped
            // after the slot is deleted, or never.
            unsafe { self.slots.set(self.slot) }?;
            self.added = true;
        }
        Ok(())
    }

    /// Deletes the slot from the hypervisor. Does nothing if it is not there. When this returns,
    /// the guest cannot reach the memory through the slot.
    ///
    /// # Errors
    /// The hypervisor's error if it does not delete the slot, which then still exists.
    pub fn delete(&mut self) -> io::Result<()> {
        if self.added {
            self.slots.delete(self.slot.number)?;
            self.added = false;
        }
        Ok(())
    }
}

impl<M> Drop for OwnedSlot<M> {
    fn drop(&mut self) {
        if let Err(e) = self.delete() {
            let Slot { number, gpa, .. } = self.slot;
            log::error!(
                "cannot delete KVM memory slot {number} at guest-physical address {gpa:#x}, so the \
                 guest can reach the slot's memory until the VM ends: {e}"
            );
            std::mem::forget(self.memory.take());
        }
    }
}
