//! Split virtqueues (Virtual I/O Device Version 1.2, 2.7), which a guest writes as it likes.
//!
//! virtio-queue walks the rings. What it logs as errors when a guest breaks them is checked here
//! before, so that a guest cannot fill the log; what it leaves out silently is found here.

use std::sync::atomic::Ordering;

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

use super::chain::{Chain, ChainError, SEGMENTS_MAX};

/// Maximum number of entries of a queue. A queue has this many unless the driver chooses fewer.
pub const QUEUE_SIZE: u16 = SEGMENTS_MAX as u16;

/// The guest-physical addresses at which a driver has put a queue, and the queue's number of
/// entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// Number of entries of the queue.
    pub size: u16,
    /// Guest-physical addresses of the parts, in the order of [`QueuePart`].
    pub parts: [u64; 3],
}

/// The parts of a queue, each of which has an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePart {
    /// The descriptor table.
    Descriptors,
    /// The ring that the driver writes ("available").
    DriverRing,
    /// The ring that the device writes ("used").
    DeviceRing,
}

impl Default for RingPlace {
    fn default() -> Self {
        Self {
            size: QUEUE_SIZE,
            parts: [0; 3],
        }
    }
}

/// Why a queue cannot be used, or cannot be used any longer.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The number of entries is not a power of two, or it is too large.
    #[error("invalid size {size} of a virtio queue: it must be a power of two, 1 to {QUEUE_SIZE}")]
    Size {
        /// Number of entries that the driver has chosen.
        size: u16,
    },
    /// A part of the queue is misaligned or not in RAM.
    #[error(
        "the {part} of a virtio queue, at guest-physical address {address:#x}, is misaligned or \
         not in guest RAM"
    )]
    Place {
        /// Name of the part that is misplaced.
        part: &'static str,
        /// Guest-physical address of the part.
        address: u64,
    },
    /// The index in the driver's ring is invalid, or guest memory cannot be accessed.
    #[error("the guest's driver wrote inconsistent indices to the rings of a virtio queue")]
    Rings(#[from] virtio_queue::Error),
    /// The chain of descriptors of a request is invalid.
    #[error(
        "the guest's chain of virtio descriptors that begins with descriptor {head} is invalid"
    )]
    Chain {
        /// Index of the chain's first descriptor.
        head: u16,
        /// Why the chain is invalid.
        source: ChainError,
    },
}

/// A queue of requests that a guest's driver has enabled. All its parts lie in guest RAM.
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
        let mut queue = Queue::new(QUEUE_SIZE)?;
        let size = place.size;
        let valid = queue.try_set_size(size);
        valid.map_err(|_| RingError::Size { size })?;
        let entries = usize::from(size);
        let check = |part, address: u64, alignment, bytes, access| {
            let at = GuestAddress(address);
            let within = GuestMemory::check_range(memory, at, bytes, access);
            // The crate takes a driver's ring at zero for none.
            let good = within && address != 0 && address.is_multiple_of(alignment);
            good.then_some(at).ok_or(RingError::Place { part, address })
        };
        // Alignments and sizes of 2.7; room for the event indices, whether used or not.
        let [table, driver, device] = place.parts;
        let (read, write) = (Permissions::Read, Permissions::Write);
        let table = check("descriptor table", table, 16, 16 * entries, read)?;
        let driver = check("driver's ring", driver, 2, 6 + 2 * entries, read)?;
        let device = check("device's ring", device, 4, 6 + 8 * entries, write)?;
        queue.try_set_desc_table_address(table)?;
        queue.try_set_avail_ring_address(driver)?;
        queue.try_set_used_ring_address(device)?;
        queue.set_event_idx(event_index);
        queue.set_ready(true);
        Ok(Self { queue })
    }

    /// Returns where the queue is, for another process that serves it.
    pub fn place(&self) -> RingPlace {
        let queue = &self.queue;
        RingPlace {
            size: queue.size(),
            parts: [queue.desc_table(), queue.avail_ring(), queue.used_ring()],
        }
    }

    /// Takes the next request from the ring that the driver writes; `None` if the ring is empty.
    ///
    /// # Errors
    /// [`RingError::Rings`] if the ring's index is invalid, [`RingError::Chain`] if the request's
    /// descriptors are invalid. The queue cannot be used any more then.
    pub fn pop(&mut self, memory: &GuestMemoryMmap) -> Result<Option<Chain>, RingError> {
        let mut heads = self.queue.iter(memory)?;
        let Some(descriptors) = heads.next() else {
            return Ok(None);
        };
        let head = descriptors.head_index();
        Chain::collect(descriptors, memory)
            .map(Some)
            .map_err(|source| RingError::Chain { head, source })
    }

    /// Tells the driver that a request is done. `head` is the index of the request's first
    /// descriptor; `written` is the number of bytes that the device has written to the request's
    /// buffers.
    ///
    /// # Errors
    /// [`RingError::Rings`] if guest memory cannot be written.
    pub fn push(
        &mut self,
        memory: &GuestMemoryMmap,
        head: u16,
        written: u32,
    ) -> Result<(), RingError> {
        Ok(self.queue.add_used(memory, head, written)?)
    }

    /// Returns whether the driver wants an interrupt for the requests that [`Self::push`] has
    /// reported as done since the last call.
    ///
    /// # Errors
    /// [`RingError::Rings`] if guest memory cannot be read.
    pub fn wants_interrupt(&mut self, memory: &GuestMemoryMmap) -> Result<bool, RingError> {
        let wanted = self.queue.needs_notification(memory);
        if self.queue.event_idx_enabled() {
            return Ok(wanted?);
        }
        let flags: u16 = memory
            .load(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed)
            .map_err(virtio_queue::Error::GuestMemory)?;
        Ok(u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT == 0)
    }

    /// Asks the driver not to notify the device of new requests, because the device is looking for
    /// them anyway.
    ///
    /// # Errors
    /// [`RingError::Rings`] if guest memory cannot be written.
    pub fn silence(&mut self, memory: &GuestMemoryMmap) -> Result<(), RingError> {
        Ok(self.queue.disable_notification(memory)?)
    }

    /// Asks the driver to notify the device of the next request. Returns true if the queue contains
    /// a request already: the driver may not notify the device of that one.
    ///
    /// # Errors
    /// [`RingError::Rings`] if guest memory cannot be read or written.
    pub fn listen(&mut self, memory: &GuestMemoryMmap) -> Result<bool, RingError> {
        Ok(self.queue.enable_notification(memory)?)
    }
}

#[cfg(test)]
mod tests;
