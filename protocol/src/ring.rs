//! Layout of a command buffer, and the rule by which its consumer sleeps and is woken.
//!
//! The first page holds positions, each on a cache line of its own; the units of the ring follow.
//! Positions count units since creation and never wrap; the unit at position `p` is `p % capacity`.
//!
//! | offset | word | written by |
//! |---|---|---|
//! | 0x00 | producer position | guest, with release ordering |
//! | 0x40 | consumer position | host, with release ordering |
//! | 0x80 | wake position | host |
//! | 0xc0 | fault status | host |
//! | 0xc8 | fault position | host |
//!
//! # Sleeping and waking
//!
//! Before it sleeps, the consumer asks to be woken for the next unit: (C1) it stores its position
//! plus one as wake position, (C2) full fence, (C3) reads the producer position again, and sleeps
//! only if nothing has come. The producer (P1) stores its new position, (P2) full fence, (P3) reads
//! the wake position, and rings the doorbell only if its update has just passed it. Of the stores
//! C1 and P1 at least one is seen by the other side, so no wake-up is lost; and a consumer that is
//! awake leaves a wake position behind it, so a busy queue never rings. (The idea is virtio's event
//! index.)
//!
//! [`publish`] and [`prepare_sleep`] are the two halves, written once for both sides and
//! model-checked.

use crate::packet::UNIT_BYTES;

/// Size of the header page in bytes. The units of the ring follow it.
pub const HEADER_BYTES: u64 = 4096;
/// Minimum capacity of a ring in units. A ring always has room for a packet of at most half its
/// capacity, together with the no-op packet that fills the end of the ring if the packet does not
/// fit there. Longer packets than that may never fit. Half of the smallest ring is enough for
/// launches with [`crate::packet::PARAMETER_BYTES_USUAL`] bytes of parameters; the longest packet
/// takes a ring of 2048 units.
pub const UNITS_MIN: u64 = 256;
/// Maximum capacity of a ring in units.
pub const UNITS_MAX: u64 = 1 << 20;

/// Offset of the producer position in the header page.
pub const PRODUCER: usize = 0x00;
/// Offset of the consumer position in the header page.
pub const CONSUMER: usize = 0x40;
/// Offset of the wake position in the header page. The guest rings the doorbell when the producer
/// position reaches or passes the wake position.
pub const WAKE: usize = 0x80;
/// Offset of the fault status in the header page. The status is a [`crate::message::Status`] as a
/// `u64`; it is zero as long as no fault has stopped the command buffer.
pub const FAULT_STATUS: usize = 0xc0;
/// Offset of the fault position in the header page: the position of the packet that caused the
/// fault.
pub const FAULT_POSITION: usize = 0xc8;

/// Returns the capacity in units of a ring that occupies `bytes` bytes, including the header page.
/// Returns `None` unless the capacity is a power of two from [`UNITS_MIN`] to [`UNITS_MAX`], and
/// the units fill all bytes after the header page.
pub const fn capacity_units(bytes: u64) -> Option<u64> {
    let Some(ring_bytes) = bytes.checked_sub(HEADER_BYTES) else {
        return None;
    };
    let units = ring_bytes / UNIT_BYTES as u64;
    let whole = ring_bytes.is_multiple_of(UNIT_BYTES as u64);
    if whole && units.is_power_of_two() && units >= UNITS_MIN && units <= UNITS_MAX {
        Some(units)
    } else {
        None
    }
}

/// Returns the size in bytes of a ring of `units` units, including the header page.
pub const fn ring_bytes(units: u64) -> u64 {
    HEADER_BYTES + units * UNIT_BYTES as u64
}

/// Access to the producer position and the wake position of a ring, for the guest, the host and the
/// tests of a model checker.
pub trait Positions {
    /// Loads the producer position with acquire ordering.
    fn producer(&self) -> u64;
    /// Stores the producer position with release ordering.
    fn set_producer(&self, position: u64);
    /// Loads the wake position with relaxed ordering.
    fn wake(&self) -> u64;
    /// Stores the wake position with relaxed ordering.
    fn set_wake(&self, position: u64);
    /// Makes a sequentially consistent memory fence.
    fn full_fence(&self);
}

/// Moves the producer position from `old` to `new`, which makes the packets up to `new` visible to
/// the consumer. Returns true if the guest must ring the doorbell.
#[must_use]
pub fn publish(ring: &impl Positions, old: u64, new: u64) -> bool {
    ring.set_producer(new); // P1
    ring.full_fence(); // P2
    passed(ring.wake(), old, new) // P3
}

/// Asks the guest to wake the consumer, which has read all packets up to `position`, when more
/// packets come. Returns true if the consumer may sleep, or false if there are more packets
/// already.
#[must_use]
pub fn prepare_sleep(ring: &impl Positions, position: u64) -> bool {
    ring.set_wake(position.wrapping_add(1)); // C1
    ring.full_fence(); // C2
    ring.producer() == position // C3
}

/// Whether `wake` lies in (`old`, `new`].
const fn passed(wake: u64, old: u64, new: u64) -> bool {
    new.wrapping_sub(wake) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_within_bounds_are_rings() {
        assert_eq!(capacity_units(ring_bytes(256)), Some(256));
        assert_eq!(capacity_units(ring_bytes(1 << 20)), Some(1 << 20));
        for bytes in [
            0,
            4095,
            4096,
            ring_bytes(128),
            ring_bytes(257),
            ring_bytes(256) + 1,
            ring_bytes(1 << 21),
            u64::MAX,
        ] {
            assert_eq!(capacity_units(bytes), None, "{bytes}");
        }
    }

    #[test]
    fn the_doorbell_rings_only_when_the_wake_position_is_passed() {
        assert!(passed(1, 0, 1));
        assert!(passed(1, 0, 5));
        assert!(passed(5, 0, 5));
        assert!(!passed(6, 0, 5));
        assert!(!passed(0, 0, 5), "a wake position left behind");
        assert!(passed(1, u64::MAX, 2), "across the wrap of u64");
    }
}

#[cfg(test)]
mod model {
    use super::*;
    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    use std::sync::Arc;

    #[derive(Default)]
    struct Model {
        producer: AtomicU64,
        wake: AtomicU64,
        doorbell: AtomicBool,
    }

    impl Positions for Model {
        fn producer(&self) -> u64 {
            self.producer.load(Ordering::Acquire)
        }
        fn set_producer(&self, position: u64) {
            self.producer.store(position, Ordering::Release);
        }
        fn wake(&self) -> u64 {
            self.wake.load(Ordering::Relaxed)
        }
        fn set_wake(&self, position: u64) {
            self.wake.store(position, Ordering::Relaxed);
        }
        fn full_fence(&self) {
            fence(Ordering::SeqCst);
        }
    }

    /// Whatever the interleaving: a consumer that went to sleep with work in the ring was rung for.
    #[test]
    fn no_wakeup_is_lost() {
        loom::model(|| {
            let ring = Arc::new(Model::default());
            let guest = Arc::clone(&ring);
            let producer = loom::thread::spawn(move || {
                for position in 0..2 {
                    if publish(&*guest, position, position + 1) {
                        guest.doorbell.store(true, Ordering::Release);
                    }
                }
            });
            let mut position = 0;
            let mut slept_at = None;
            for _ in 0..3 {
                position = ring.producer();
                if prepare_sleep(&*ring, position) {
                    slept_at = Some(position);
                    break;
                }
            }
            producer.join().unwrap();
            if let Some(at) = slept_at {
                let work = ring.producer() != at;
                assert!(
                    !work || ring.doorbell.load(Ordering::Acquire),
                    "asleep with work in the ring"
                );
            }
            let _ = position;
        });
    }
}
