//! Split virtqueues (Virtual I/O Device Version 1.2, 2.7), which a guest writes as it likes.
//!
//! virtio-queue walks the rings. What it logs as errors when a guest breaks them is checked here
//! before, so that a guest cannot fill the log; what it leaves out silently is found here.

use std::sync::atomic::Ordering;

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

use super::chain::{Chain, ChainError, SEGMENTS_MAX};

/// Entries of a queue at most, and unless the driver chooses fewer.
pub const QUEUE_SIZE: u16 = SEGMENTS_MAX as u16;

/// Where a driver put a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// Entries.
    pub size: u16,
    /// Guest-physical address of the descriptor table.
    pub descriptors: u64,
    /// Guest-physical address of the driver's ring ("available").
    pub driver: u64,
    /// Guest-physical address of the device's ring ("used").
    pub device: u64,
}

impl Default for RingPlace {
    fn default() -> Self {
        Self {
            size: QUEUE_SIZE,
            descriptors: 0,
            driver: 0,
            device: 0,
        }
    }
}

/// Why a queue cannot be used, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// No power of two, or too large.
    #[error("invalid queue size {size}: a power of two, 1 to {QUEUE_SIZE}")]
    Size {
        /// Entries.
        size: u16,
    },
    /// A part is misaligned, or not in RAM.
    #[error("the {part} at {address:#x} is misaligned or not in guest memory")]
    Place {
        /// Which part.
        part: &'static str,
        /// Guest-physical address.
        address: u64,
    },
    /// The driver's index is nonsense, or memory is gone.
    #[error("the rings are inconsistent")]
    Rings(#[source] virtio_queue::Error),
    /// A request is nonsense.
    #[error("invalid chain from descriptor {head}")]
    Chain {
        /// Its first descriptor.
        head: u16,
        /// What is wrong.
        source: ChainError,
    },
}

/// A queue in use. All of it was in RAM when it was made; RAM does not go away.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
}

impl Ring {
    /// A queue where the driver put it. `event_index`: whether `VIRTIO_F_EVENT_IDX` was negotiated.
    ///
    /// # Errors
    /// [`RingError::Size`] and [`RingError::Place`].
    pub fn new(
        place: &RingPlace,
        event_index: bool,
        memory: &GuestMemoryMmap,
    ) -> Result<Self, RingError> {
        let mut queue = Queue::new(QUEUE_SIZE).map_err(RingError::Rings)?;
        let size = place.size;
        queue
            .try_set_size(size)
            .map_err(|_| RingError::Size { size })?;
        let bytes = PartBytes::of(size);
        let check = |part, address, bytes, access| {
            let within = GuestMemory::check_range(memory, GuestAddress(address), bytes, access);
            let error = RingError::Place { part, address };
            // The crate takes a driver's ring at zero for none.
            if within && address != 0 {
                Ok(GuestAddress(address))
            } else {
                Err(error)
            }
        };
        let part = "descriptor table";
        let at = check(
            part,
            place.descriptors,
            bytes.descriptors,
            Permissions::Read,
        )?;
        let misaligned = |part, address| move |_| RingError::Place { part, address };
        queue
            .try_set_desc_table_address(at)
            .map_err(misaligned(part, at.0))?;
        let part = "driver's ring";
        let at = check(part, place.driver, bytes.driver, Permissions::Read)?;
        queue
            .try_set_avail_ring_address(at)
            .map_err(misaligned(part, at.0))?;
        let part = "device's ring";
        let at = check(part, place.device, bytes.device, Permissions::Write)?;
        queue
            .try_set_used_ring_address(at)
            .map_err(misaligned(part, at.0))?;
        queue.set_event_idx(event_index);
        queue.set_ready(true);
        Ok(Self { queue })
    }

    /// The next request, if there is one.
    ///
    /// # Errors
    /// [`RingError::Rings`] and [`RingError::Chain`]; the queue cannot be used any more.
    pub fn pop(&mut self, memory: &GuestMemoryMmap) -> Result<Option<Chain>, RingError> {
        let mut heads = self.queue.iter(memory).map_err(RingError::Rings)?;
        let Some(descriptors) = heads.next() else {
            return Ok(None);
        };
        let head = descriptors.head_index();
        Chain::collect(descriptors, memory)
            .map(Some)
            .map_err(|source| RingError::Chain { head, source })
    }

    /// Gives a request back, with `written` bytes of its writable part written.
    ///
    /// # Errors
    /// [`RingError::Rings`].
    pub fn push(
        &mut self,
        memory: &GuestMemoryMmap,
        head: u16,
        written: u32,
    ) -> Result<(), RingError> {
        self.queue
            .add_used(memory, head, written)
            .map_err(RingError::Rings)
    }

    /// Whether the driver wants to hear of what was given back since this was asked last.
    ///
    /// # Errors
    /// [`RingError::Rings`].
    pub fn wants_interrupt(&mut self, memory: &GuestMemoryMmap) -> Result<bool, RingError> {
        let wanted = self.queue.needs_notification(memory);
        if self.queue.event_idx_enabled() {
            return wanted.map_err(RingError::Rings);
        }
        let flags: u16 = memory
            .load(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed)
            .map_err(|e| RingError::Rings(virtio_queue::Error::GuestMemory(e)))?;
        Ok(u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT == 0)
    }

    /// Tells the driver not to notify: the queue is being looked at.
    ///
    /// # Errors
    /// [`RingError::Rings`].
    pub fn silence(&mut self, memory: &GuestMemoryMmap) -> Result<(), RingError> {
        self.queue
            .disable_notification(memory)
            .map_err(RingError::Rings)
    }

    /// Tells the driver to notify. True if a request came in before that: nobody will tell.
    ///
    /// # Errors
    /// [`RingError::Rings`].
    pub fn listen(&mut self, memory: &GuestMemoryMmap) -> Result<bool, RingError> {
        self.queue
            .enable_notification(memory)
            .map_err(RingError::Rings)
    }
}

/// Sizes of a queue's parts in bytes (2.7), with the event indices, whether used or not.
struct PartBytes {
    descriptors: usize,
    driver: usize,
    device: usize,
}

impl PartBytes {
    fn of(size: u16) -> Self {
        let size = usize::from(size);
        Self {
            descriptors: 16 * size,
            driver: 6 + 2 * size,
            device: 6 + 8 * size,
        }
    }
}

#[cfg(test)]
mod tests;
