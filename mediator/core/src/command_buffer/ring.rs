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
    /// Maps the `bytes` bytes at `offset` of `memory` as a ring, and clears the ring's header, so
    /// that both positions begin at 0 whatever the memory contained.
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

    /// Returns the memory object that contains the ring, and the offset of the ring in that object.
    pub fn place(&self) -> &RingPlace {
        &self.place
    }

    /// Returns the size of the ring in units of 64 bytes, which is a power of two.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns how many units the producer has written that the consumer has not yet consumed. The
    /// result never exceeds the size of the ring, even if the guest wrote an invalid position.
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

    /// Copies `into.len()` bytes, a multiple of the unit size, from `position` of the ring to
    /// `into`. The caller must not ask for more units than [`Self::units_to_end`] returns.
    pub fn copy_units(&self, position: u64, into: &mut [u8]) -> Result<(), RangeError> {
        let unit = position & (self.units - 1);
        self.mapping
            .read(HEADER_BYTES + unit * UNIT_BYTES as u64, into)
    }

    /// Writes the consumer's new `position` into the ring's header, which tells the producer that
    /// all units before it can be reused.
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
