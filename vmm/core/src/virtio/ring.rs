//! Split virtqueues (Virtual I/O Device Version 1.2, 2.7), which a guest writes as it likes.
//!
//! virtio-queue walks the rings. What it logs as errors when a guest breaks them is checked here
//! before, so that a guest cannot fill the log; what it leaves out silently is found here.

use std::sync::atomic::Ordering;

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

use super::chain::{Chain, ChainError, SEGMENTS_MAX};

/// Most entries of a queue, and their number unless the driver chooses fewer.
pub const QUEUE_SIZE: u16 = SEGMENTS_MAX as u16;

/// Where in guest memory a driver has put a queue, and how long the queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// Number of entries.
    pub size: u16,
    /// Guest-physical address of the descriptor table.
    pub descriptors: u64,
    /// Guest-physical address of the ring that the driver writes ("available").
    pub driver: u64,
    /// Guest-physical address of the ring that the device writes ("used").
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

/// Why a queue cannot be used, or cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The number of entries is no power of two, or too large.
    #[error("invalid queue size {size}: a power of two, 1 to {QUEUE_SIZE}")]
    Size {
        /// Number of entries that the driver has chosen.
        size: u16,
    },
    /// A part of the queue is misaligned, or not in RAM.
    #[error("the {part} of a queue, at {address:#x}, is misaligned or not in guest RAM")]
    Place {
        /// Name of the part.
        part: &'static str,
        /// Guest-physical address.
        address: u64,
    },
    /// The index in the driver's ring is invalid, or guest memory cannot be accessed.
    #[error("the rings of the queue are inconsistent")]
    Rings(#[source] virtio_queue::Error),
    /// The chain of descriptors of a request is invalid.
    #[error("invalid chain of descriptors from descriptor {head} on")]
    Chain {
        /// Index of the chain's first descriptor.
        head: u16,
        /// Why the chain is invalid.
        source: ChainError,
    },
}

/// A queue that a driver has enabled. All its parts lie in guest RAM.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
}

impl Ring {
    /// Returns the queue at `place` in guest memory. `event_index` says whether the driver has
    /// accepted the feature `VIRTIO_F_EVENT_IDX`.
    ///
    /// # Errors
    /// [`RingError::Size`] if the number of entries is invalid, [`RingError::Place`] if a part is
    /// misaligned or not in RAM.
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

    /// Takes the next request from the driver's ring; `None` if the ring is empty.
    ///
    /// # Errors
    /// [`RingError::Rings`] if the ring's index is invalid, [`RingError::Chain`] if the request's
    /// descriptors are. The queue cannot be used any more then.
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

    /// Returns the request with first descriptor `head` to the driver, as done, with `written`
    /// bytes in its writable buffers.
    ///
    /// # Errors
    /// [`RingError::Rings`] if guest memory cannot be written.
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

    /// Returns whether the driver wants an interrupt for the requests that [`Self::push`] has
    /// returned since the last call.
    ///
    /// # Errors
    /// [`RingError::Rings`] if guest memory cannot be read.
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

    /// Asks the driver not to notify, because the device is serving the queue.
    ///
    /// # Errors
    /// [`RingError::Rings`] if guest memory cannot be written.
    pub fn silence(&mut self, memory: &GuestMemoryMmap) -> Result<(), RingError> {
        self.queue
            .disable_notification(memory)
            .map_err(RingError::Rings)
    }

    /// Asks the driver to notify of the next request. Returns true if a request has arrived before,
    /// of which the driver does not notify.
    ///
    /// # Errors
    /// [`RingError::Rings`] if guest memory cannot be read or written.
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
