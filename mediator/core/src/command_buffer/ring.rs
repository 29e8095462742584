//! The consumer's view of a ring. The guest writes the same memory at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use causeway_memory::{Mapping, RangeError};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use causeway_protocol::packet::UNIT_BYTES;
use causeway_protocol::ring::{
    CONSUMER, FAULT_POSITION, FAULT_STATUS, HEADER_BYTES, PRODUCER, Positions, WAKE, capacity_units,
};

use crate::backend::Memory;
use crate::host::RingPlace;
use crate::refusal::Refusal;

/// A ring in a mapping of the consumer's own.
pub(crate) struct Ring {
    mapping: Mapping,
    place: RingPlace,
    units: u64,
    /// The consumer position written last. The guest can change the word in the ring.
    consumed: AtomicU64,
}

impl Ring {
    /// Maps the ring of `bytes` bytes at `offset` of `memory`, and sets all words of its header to
    /// 0.
    pub fn new(memory: &dyn Memory, offset: u64, bytes: u64) -> Result<Self, Refusal> {
        let bad_memory = Refusal::new(Status::BadMemory);
        let units = capacity_units(bytes).ok_or(bad_memory)?;
        let backing = memory.backing().ok_or(bad_memory)?;
        let (shared, base) = backing.host().ok_or(bad_memory)?;
        let mapping = shared.map(base + offset, bytes, Access::ReadWrite)?;
        let place = RingPlace {
            memory: Arc::clone(shared),
            offset: base + offset,
        };
        let ring = Self {
            mapping,
            place,
            units,
            consumed: AtomicU64::new(0),
        };
        for word in [PRODUCER, CONSUMER, WAKE, FAULT_STATUS, FAULT_POSITION] {
            ring.store(word, 0, Ordering::Relaxed);
        }
        Ok(ring)
    }

    /// Returns the place of the ring in its memory object.
    pub fn place(&self) -> &RingPlace {
        &self.place
    }

    /// Returns the size of the ring in units; a power of two.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns how many units the producer has written and the consumer has not consumed; at most
    /// the size of the ring, whatever the guest wrote.
    pub fn queued_units(&self) -> u64 {
        let consumed = self.consumed.load(Ordering::Relaxed);
        self.load(PRODUCER, Ordering::Relaxed)
            .wrapping_sub(consumed)
            .min(self.units)
    }

    /// Returns how many units lie between `position` and the end of the ring.
    pub fn units_to_end(&self, position: u64) -> u64 {
        self.units - (position & (self.units - 1))
    }

    /// Copies whole units from `position` on to `into`. The caller makes sure that they do not
    /// reach beyond the end of the ring.
    pub fn copy_units(&self, position: u64, into: &mut [u8]) -> Result<(), RangeError> {
        let unit = position & (self.units - 1);
        self.mapping
            .read(HEADER_BYTES + unit * UNIT_BYTES as u64, into)
    }

    /// Shows the producer that everything before `position` is consumed.
    pub fn set_consumer(&self, position: u64) {
        self.consumed.store(position, Ordering::Relaxed);
        self.store(CONSUMER, position, Ordering::Release);
    }

    /// Writes into the ring's header that the consumer stopped at `position` because of `status`.
    pub fn set_fault(&self, status: Status, position: u64) {
        self.store(FAULT_POSITION, position, Ordering::Relaxed);
        self.store(FAULT_STATUS, u64::from(status as u32), Ordering::Release);
    }

    fn load(&self, word: usize, order: Ordering) -> u64 {
        // The header page lies within the mapping, by construction.
        self.mapping.load_u64(word as u64, order).unwrap_or(0)
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        let stored = self.mapping.store_u64(word as u64, value, order);
        debug_assert!(stored.is_ok(), "the header page lies within the mapping");
    }
}

impl Positions for Ring {
    fn producer(&self) -> u64 {
        self.load(PRODUCER, Ordering::Acquire)
    }

    fn set_producer(&self, position: u64) {
        self.store(PRODUCER, position, Ordering::Release);
    }

    fn wake(&self) -> u64 {
        self.load(WAKE, Ordering::Relaxed)
    }

    fn set_wake(&self, position: u64) {
        self.store(WAKE, position, Ordering::Relaxed);
    }

    fn full_fence(&self) {
        fence(Ordering::SeqCst);
    }
}
