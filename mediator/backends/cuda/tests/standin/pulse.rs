//! The end of each piece of work is seen while somebody watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_kernels::special;
use causeway_mediator::backend::{Progress, Pulse};
use causeway_protocol::message::MemoryKind;

use crate::support::{Buffer, GRANULE, Rig, host, is_child};

/// More than may be under way while somebody watches.
const LAUNCHES: u64 = 300;
/// Most marks under way.
const MARKS_MAX: u64 = 128;

/// A rig whose queue tells of its work, and memory for its kernels.
struct Watched {
    rig: Rig,
    pulse: Arc<Pulse>,
    /// Pieces of work that have begun and ended.
    counts: Arc<[AtomicU64; 2]>,
    memory: Buffer,
}

impl Watched {
    fn new(is_wanted: bool) -> Self {
        let pulse = Arc::<Pulse>::default();
        let counts = Arc::<[AtomicU64; 2]>::default();
        let told = Arc::clone(&counts);
        pulse.observe(move |pieces| {
            told[0].store(pieces.begun, Ordering::Relaxed);
            told[1].store(pieces.ended, Ordering::Relaxed);
        });
        pulse.want(is_wanted);
        let mut rig = Rig::new();
        rig.queue.set_pulse(&pulse);
        let memory = rig.buffer(MemoryKind::Host, GRANULE);
        Self {
            rig,
            pulse,
            counts,
            memory,
        }
    }

    fn counts(&self) -> [u64; 2] {
        let counts = self.counts.each_ref();
        counts.map(|count| count.load(Ordering::Relaxed))
    }

    /// Launches a kernel of [`special`] in one thread, `count` times.
    fn launch(&mut self, name: &str, parameters: &[u8], count: u64) {
        let module = self.rig.load(special::PTX.as_bytes()).unwrap();
        let one = ([1; 3], [1; 3]);
        for _ in 0..count {
            self.rig.launch(&module, name, one, parameters).unwrap();
        }
    }

    /// Launches short kernels, and returns how many ends were seen before anybody asked for the
    /// last one.
    fn ends_seen(&mut self) -> u64 {
        let mut parameters = 1_u64.to_le_bytes().to_vec();
        parameters.extend(self.memory.va.to_le_bytes());
        self.launch(special::SPIN, &parameters, LAUNCHES);
        let [_, ended] = self.counts();
        self.rig.wait().unwrap();
        let spun = host(&self.memory.memory).word(0) as u32;
        assert_eq!(spun, special::spun(0, LAUNCHES as u32));
        ended
    }
}

#[test]
fn ends_are_seen_while_work_goes_on() {
    if !is_child("pulse::ends_are_seen_while_work_goes_on", &[]) {
        return;
    }
    let mut watched = Watched::new(true);
    let seen = watched.ends_seen();
    assert!(seen > LAUNCHES - MARKS_MAX, "{seen} ends");
    assert_eq!(watched.counts(), [LAUNCHES; 2]);
}

#[test]
fn nothing_is_marked_if_nobody_watches() {
    if !is_child("pulse::nothing_is_marked_if_nobody_watches", &[]) {
        return;
    }
    let mut watched = Watched::new(false);
    watched.ends_seen();
    assert_eq!(watched.counts(), [0, 0]);
}

/// Nobody else can tell that a process still has it: its command buffer and session have ended.
#[test]
fn work_that_is_abandoned_never_ends() {
    if !is_child("pulse::work_that_is_abandoned_never_ends", &[]) {
        return;
    }
    let mut watched = Watched::new(false);
    let flag = watched.memory.va.to_le_bytes();
    watched.launch(special::FOREVER, &flag, 1);
    assert_eq!(watched.counts(), [0, 0], "nobody watches");
    // What is under way already is one piece.
    watched.pulse.want(true);
    assert_eq!(watched.rig.queue.poll().unwrap(), Progress::Busy);
    assert_eq!(watched.counts(), [1, 0]);
    watched.rig.stop.store(true, Ordering::SeqCst);
    assert!(!watched.rig.queue.close(), "the queue is left with it");
    assert_eq!(watched.counts(), [1, 0]);
}

#[test]
fn a_fault_ends_all_work() {
    if !is_child("pulse::a_fault_ends_all_work", &[]) {
        return;
    }
    let mut watched = Watched::new(true);
    let mut wild = 0x10_0000_0000_u64.to_le_bytes().to_vec();
    wild.extend(7_u32.to_le_bytes());
    watched.launch(special::WILD_STORE, &wild, 1);
    assert!(watched.rig.queue.finish().is_err());
    assert!(watched.rig.queue.close());
    // A kernel that faults before its launch returns is not counted at all.
    let [begun, ended] = watched.counts();
    assert_eq!(begun, ended);
}
