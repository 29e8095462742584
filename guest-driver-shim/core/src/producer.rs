//! The guest's half of a command buffer: writes packets, waits for room, publishes.
//!
//! [`Producer`] is generic over [`RingMemory`], so that the code which runs in a guest is also the
//! code that the model checker runs.

use causeway_protocol::message::Status;
use causeway_protocol::packet::{Opcode, UNIT_BYTES};
use causeway_protocol::ring::{self, Positions};

use crate::error::SubmitError;

/// Turns of the loop that waits for room before it gives up: some tenths of a second.
const TURNS: u32 = 1 << 22;

/// A unit of a ring, 64 bytes, as 64-bit words.
pub type Unit = [u64; UNIT_BYTES / 8];

/// Access to the memory of a ring: what a [`Producer`] needs to write packets.
pub trait RingMemory: Positions {
    /// Returns the size of the ring in units, a power of two.
    fn capacity(&self) -> u64;
    /// Loads the consumer position with acquire ordering.
    fn consumer(&self) -> u64;
    /// Loads the fault status with acquire ordering.
    fn fault_status(&self) -> u64;
    /// Loads the position of the packet that caused the fault.
    fn fault_position(&self) -> u64;
    /// Writes `unit` to the ring, at `position` modulo the capacity.
    fn store_unit(&self, position: u64, unit: &Unit);
    /// Writes only the first word of the unit at `position`. The device reads nothing else of a
    /// no-op packet.
    fn store_head(&self, position: u64, head: u64);
    /// Is called on each turn of the loop in which the producer waits for room.
    #[inline]
    fn relax(&self) {
        core::hint::spin_loop();
    }
}

/// Writes packets into a ring. The device sees them only after [`Self::publish`].
#[derive(Debug)]
pub struct Producer<R> {
    ring: R,
    /// What the device has been told.
    published: u64,
    /// Where the next packet goes.
    position: u64,
    /// Position up to which there is room, by the consumer position read last.
    room_until: u64,
}

impl<R: RingMemory> Producer<R> {
    /// Returns a producer for the empty ring `ring`, whose producer and consumer positions are
    /// equal.
    pub fn new(ring: R) -> Self {
        let position = ring.producer();
        let room_until = ring.consumer().wrapping_add(ring.capacity());
        Self {
            ring,
            published: position,
            position,
            room_until,
        }
    }

    /// Returns the size of the ring in units.
    pub fn capacity(&self) -> u64 {
        self.ring.capacity()
    }

    /// Returns the position after the last packet written, in units.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the memory of the ring.
    pub fn ring(&self) -> &R {
        &self.ring
    }

    /// If a fault has stopped the command buffer, returns the status of the fault and the position
    /// of the packet that caused it, in units. Otherwise returns `None`.
    #[inline]
    pub fn fault(&self) -> Option<(Status, u64)> {
        let status = self.ring.fault_status();
        if status == 0 {
            None
        } else {
            Some(self.decode_fault(status))
        }
    }

    #[cold]
    fn decode_fault(&self, status: u64) -> (Status, u64) {
        let decoded = u32::try_from(status).ok().and_then(Status::from_wire);
        let usual = match status {
            // The ring's memory is gone: a hole of the aperture reads all-ones.
            u64::MAX => Status::DeviceLost,
            _ => Status::BackEnd,
        };
        (decoded.unwrap_or(usual), self.ring.fault_position())
    }

    /// Writes a packet of one unit. If the ring is full, first publishes the packets written so far
    /// and waits until the device has executed enough of them. Calls `ring`, which must ring the
    /// doorbell, if the device's consumer sleeps then.
    ///
    /// # Errors
    /// [`SubmitError::Stopped`] if the ring is full and a fault has stopped the command buffer;
    /// [`SubmitError::Full`] if the device makes no room. The packet is not written then.
    #[inline]
    pub fn push_unit(&mut self, unit: &Unit, ring: impl FnMut()) -> Result<(), SubmitError> {
        if self.room() == 0 {
            self.wait_for_room(1, ring)?;
        }
        self.ring.store_unit(self.position, unit);
        self.position = self.position.wrapping_add(1);
        Ok(())
    }

    /// Writes a packet that consists of the unit `head` and `tail_units` further units; `unit_at`
    /// returns each further unit by its index. Waits for room and calls `ring` as
    /// [`Self::push_unit`] does.
    ///
    /// # Errors
    /// [`SubmitError::Stopped`] if the ring is full and a fault has stopped the command buffer;
    /// [`SubmitError::Full`] if the device makes no room; [`SubmitError::TooLong`] if the packet is
    /// longer than half the ring. The packet is not written then.
    #[inline]
    pub fn push_long(
        &mut self,
        head: &Unit,
        tail_units: u64,
        mut unit_at: impl FnMut(usize) -> Unit,
        mut ring: impl FnMut(),
    ) -> Result<(), SubmitError> {
        let units = 1 + tail_units;
        let units_max = self.capacity() / 2;
        if units > units_max {
            return Err(SubmitError::TooLong { units, units_max });
        }
        let left = self.capacity() - (self.position & (self.capacity() - 1));
        if left < units {
            self.pad(left, &mut ring)?;
        }
        if self.room() < units {
            self.wait_for_room(units, ring)?;
        }
        self.ring.store_unit(self.position, head);
        for i in 0..tail_units {
            self.ring
                .store_unit(self.position.wrapping_add(1 + i), &unit_at(i as usize));
        }
        self.position = self.position.wrapping_add(units);
        Ok(())
    }

    /// Fills the end of the ring with one no-op.
    #[cold]
    fn pad(&mut self, units: u64, ring: impl FnMut()) -> Result<(), SubmitError> {
        if self.room() < units {
            self.wait_for_room(units, ring)?;
        }
        self.ring.store_head(self.position, nop_head(units));
        self.position = self.position.wrapping_add(units);
        Ok(())
    }

    /// Makes all packets written so far visible to the device. Returns true if the caller must ring
    /// the doorbell.
    #[inline]
    #[must_use]
    pub fn publish(&mut self) -> bool {
        let old = self.published;
        if old == self.position {
            return false;
        }
        self.published = self.position;
        ring::publish(&self.ring, old, self.position)
    }

    #[inline]
    fn room(&self) -> u64 {
        self.room_until.wrapping_sub(self.position)
    }

    /// Spins until `units` units are free, for some time. Publishes first: the device may sleep
    /// until it sees them.
    #[cold]
    fn wait_for_room(&mut self, units: u64, mut ring: impl FnMut()) -> Result<(), SubmitError> {
        let capacity = self.capacity();
        self.room_until = self.ring.consumer().wrapping_add(capacity);
        if self.room() >= units {
            return Ok(());
        }
        if self.publish() {
            ring();
        }
        for _ in 0..TURNS {
            self.room_until = self.ring.consumer().wrapping_add(capacity);
            if self.room() >= units {
                return Ok(());
            }
            if let Some((status, position)) = self.fault() {
                return Err(SubmitError::Stopped { status, position });
            }
            self.ring.relax();
        }
        Err(SubmitError::Full)
    }
}

/// First word of a no-op that is `units` units long.
const fn nop_head(units: u64) -> u64 {
    head(Opcode::Nop, units as u32)
}

/// A packet's header as a word.
pub(crate) const fn head(opcode: Opcode, units: u32) -> u64 {
    opcode as u16 as u64 | (units as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::vec;
    use std::vec::Vec;

    struct TestRing {
        capacity: u64,
        producer: Cell<u64>,
        consumer: Cell<u64>,
        wake: Cell<u64>,
        fault: Cell<u64>,
        /// Consume everything published when asked for the consumer position.
        greedy: bool,
        units: RefCell<Vec<Unit>>,
    }

    fn test_ring(greedy: bool) -> TestRing {
        TestRing {
            capacity: 256,
            producer: Cell::new(0),
            consumer: Cell::new(0),
            wake: Cell::new(u64::MAX / 2),
            fault: Cell::new(0),
            greedy,
            units: RefCell::new(vec![[0; 8]; 256]),
        }
    }

    impl Positions for TestRing {
        fn producer(&self) -> u64 {
            self.producer.get()
        }
        fn set_producer(&self, position: u64) {
            self.producer.set(position);
        }
        fn wake(&self) -> u64 {
            self.wake.get()
        }
        fn set_wake(&self, position: u64) {
            self.wake.set(position);
        }
        fn full_fence(&self) {}
    }

    impl RingMemory for TestRing {
        fn capacity(&self) -> u64 {
            self.capacity
        }
        fn consumer(&self) -> u64 {
            if self.greedy {
                self.consumer.set(self.producer.get());
            }
            self.consumer.get()
        }
        fn fault_status(&self) -> u64 {
            self.fault.get()
        }
        fn fault_position(&self) -> u64 {
            77
        }
        fn store_unit(&self, position: u64, unit: &Unit) {
            self.units.borrow_mut()[(position % self.capacity) as usize] = *unit;
        }
        fn store_head(&self, position: u64, head: u64) {
            self.units.borrow_mut()[(position % self.capacity) as usize][0] = head;
        }
    }

    #[test]
    fn nothing_is_visible_before_publish() {
        let mut producer = Producer::new(test_ring(false));
        producer.push_unit(&[1; 8], || ()).unwrap();
        producer.push_unit(&[2; 8], || ()).unwrap();
        assert_eq!(producer.ring().producer.get(), 0);
        assert!(!producer.publish());
        assert_eq!(producer.ring().producer.get(), 2);
        assert_eq!(producer.ring().units.borrow()[1], [2; 8]);
    }

    #[test]
    fn a_sleeping_consumer_is_rung_for_once() {
        let mut producer = Producer::new(test_ring(false));
        producer.ring().wake.set(1);
        producer.push_unit(&[1; 8], || ()).unwrap();
        assert!(producer.publish());
        producer.push_unit(&[1; 8], || ()).unwrap();
        assert!(!producer.publish(), "wake position is behind");
        assert!(!producer.publish(), "nothing new");
    }

    #[test]
    fn a_long_packet_does_not_straddle_the_end() {
        let mut producer = Producer::new(test_ring(true));
        for i in 0..250 {
            producer.push_unit(&[i; 8], || ()).unwrap();
        }
        producer
            .push_long(&[9; 8], 9, |i| [i as u64; 8], || ())
            .unwrap();
        let units = producer.ring().units.borrow();
        assert_eq!(units[250][0], head(Opcode::Nop, 6));
        assert_eq!(units[0], [9; 8]);
        assert_eq!(units[9], [8; 8]);
        assert_eq!(producer.position(), 266);
    }

    #[test]
    fn a_packet_is_at_most_half_as_long_as_the_ring() {
        let mut producer = Producer::new(test_ring(true));
        for _ in 0..2 {
            producer.push_unit(&[0; 8], || ()).unwrap();
            producer.push_long(&[9; 8], 127, |_| [1; 8], || ()).unwrap();
        }
        let refused = producer.push_long(&[9; 8], 128, |_| [1; 8], || ());
        let (units, units_max) = (129, 128);
        assert_eq!(refused, Err(SubmitError::TooLong { units, units_max }));
    }

    #[test]
    fn a_full_ring_is_published_before_the_wait_for_room() {
        let mut producer = Producer::new(test_ring(true));
        producer.ring().wake.set(1);
        let mut rung = 0;
        for i in 0..257 {
            producer.push_unit(&[i; 8], || rung += 1).unwrap();
        }
        assert_eq!(rung, 1, "the sleeping consumer must be woken to make room");
        assert_eq!(producer.ring().units.borrow()[0], [256; 8]);
    }

    #[test]
    fn a_device_that_is_gone_ends_the_wait_for_room() {
        let mut producer = Producer::new(test_ring(false));
        for _ in 0..256 {
            producer.push_unit(&[0; 8], || ()).unwrap();
        }
        let error = producer.push_unit(&[0; 8], || ()).unwrap_err();
        assert_eq!(error, SubmitError::Full);
        assert_eq!(producer.position(), 256, "nothing is written");
    }

    #[test]
    fn a_stopped_device_ends_the_wait_for_room() {
        let mut producer = Producer::new(test_ring(false));
        for _ in 0..256 {
            producer.push_unit(&[0; 8], || ()).unwrap();
        }
        producer.ring().fault.set(Status::DeviceLost as u64);
        let error = producer.push_unit(&[0; 8], || ()).unwrap_err();
        assert_eq!(
            error,
            SubmitError::Stopped {
                status: Status::DeviceLost,
                position: 77
            }
        );
    }
}
