//! The producer of guests, run by the model checker against a consumer that sleeps.

use causeway_protocol::ring::{Positions, prepare_sleep};
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Notify};
use loom::thread;

use crate::producer::{Producer, RingMemory, Unit};

/// Units of the modelled ring: fewer than packets, so that the producer has to wait for room.
const CAPACITY: u64 = 2;
const PACKETS: u64 = 3;

struct Memory {
    producer: AtomicU64,
    consumer: AtomicU64,
    wake: AtomicU64,
    /// Stays rung until somebody sleeps on it, as an eventfd does.
    doorbell: Notify,
    units: [AtomicU64; CAPACITY as usize],
}

struct Shared(Arc<Memory>);

impl Positions for Shared {
    fn producer(&self) -> u64 {
        self.0.producer.load(Ordering::Acquire)
    }
    fn set_producer(&self, position: u64) {
        self.0.producer.store(position, Ordering::Release);
    }
    fn wake(&self) -> u64 {
        self.0.wake.load(Ordering::Relaxed)
    }
    fn set_wake(&self, position: u64) {
        self.0.wake.store(position, Ordering::Relaxed);
    }
    fn full_fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl RingMemory for Shared {
    fn capacity(&self) -> u64 {
        CAPACITY
    }
    fn consumer(&self) -> u64 {
        self.0.consumer.load(Ordering::Acquire)
    }
    fn fault_status(&self) -> u64 {
        0
    }
    fn fault_position(&self) -> u64 {
        0
    }
    fn store_unit(&self, position: u64, unit: &Unit) {
        self.store_head(position, unit[0]);
    }
    fn store_head(&self, position: u64, head: u64) {
        self.0.units[(position % CAPACITY) as usize].store(head, Ordering::Relaxed);
    }
    fn relax(&self) {
        thread::yield_now();
    }
}

/// Takes every packet, and sleeps whenever it finds none.
fn consume(ring: &Shared) {
    for position in 0..PACKETS {
        while ring.producer() == position {
            if prepare_sleep(ring, position) {
                ring.0.doorbell.wait();
            }
        }
        let unit = ring.0.units[(position % CAPACITY) as usize].load(Ordering::Relaxed);
        assert_eq!(
            unit,
            100 + position,
            "a packet was overwritten or seen too early"
        );
        ring.0.consumer.store(position + 1, Ordering::Release);
    }
}

/// Whatever the interleaving: every packet arrives whole and in order, and nobody sleeps for ever.
#[test]
fn packets_arrive_and_no_wakeup_is_lost() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let memory = Arc::new(Memory {
            producer: AtomicU64::new(0),
            consumer: AtomicU64::new(0),
            wake: AtomicU64::new(0),
            doorbell: Notify::new(),
            units: Default::default(),
        });
        let consumer = Shared(Arc::clone(&memory));
        let consumer = thread::spawn(move || consume(&consumer));
        let doorbell = Arc::clone(&memory);
        let ring = || doorbell.doorbell.notify();
        let mut producer = Producer::new(Shared(memory));
        for packet in 0..PACKETS {
            producer.push_unit(&[100 + packet; 8], ring).unwrap();
            if producer.publish() {
                ring();
            }
        }
        consumer.join().unwrap();
    });
}
