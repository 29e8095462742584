//! The end of each piece of work is seen while somebody watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::backend::{Progress, Pulse};
use causeway_protocol::message::MemoryKind;

use crate::support::{GRANULE, Rig, host, is_child};

/// Adds one to a word.
const COUNT: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 to)
{
    .reg .u64 %to, %word;
    ld.param.u64 %to, [to];
    ld.global.u64 %word, [%to];
    add.u64 %word, %word, 1;
    st.global.u64 [%to], %word;
    ret;
}
";
/// Never ends.
const ENDLESS: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry endless()
{
again:
    bra again;
}
";
/// More than may be under way while somebody watches.
const LAUNCHES: u64 = 300;

/// Pieces of work that a pulse was told of.
fn observed(pulse: &Pulse) -> Arc<[AtomicU64; 2]> {
    let counts = Arc::<[AtomicU64; 2]>::default();
    let told = Arc::clone(&counts);
    pulse.observe(move |pieces| {
        told[0].store(pieces.begun, Ordering::Relaxed);
        told[1].store(pieces.ended, Ordering::Relaxed);
    });
    counts
}

fn read(counts: &[AtomicU64; 2]) -> [u64; 2] {
    counts.each_ref().map(|count| count.load(Ordering::Relaxed))
}

/// Launches kernels, and returns how many ends were seen before anybody asked for the last one.
fn ends_seen(rig: &mut Rig, is_wanted: bool) -> u64 {
    let pulse = Arc::<Pulse>::default();
    let counts = observed(&pulse);
    pulse.want(is_wanted);
    rig.renew_queue();
    rig.queue.set_pulse(&pulse);
    let module = rig.load(COUNT.as_bytes()).unwrap();
    let word = rig.buffer(MemoryKind::Host, GRANULE);
    let one = ([1; 3], [1; 3]);
    for _ in 0..LAUNCHES {
        rig.launch(&module, "count", one, &word.va.to_le_bytes())
            .unwrap();
    }
    let [_, before] = read(&counts);
    rig.wait().unwrap();
    assert_eq!(host(&word.memory).word(0), LAUNCHES);
    let wanted = if is_wanted { LAUNCHES } else { 0 };
    assert_eq!(read(&counts), [wanted; 2]);
    before
}

#[test]
fn ends_are_seen_while_work_goes_on_if_somebody_watches() {
    if !is_child(
        "pulse::ends_are_seen_while_work_goes_on_if_somebody_watches",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    assert_eq!(ends_seen(&mut rig, false), 0);
    let seen = ends_seen(&mut rig, true);
    assert!(seen >= LAUNCHES - 256, "{seen} ends");
}

/// Nobody else can tell that a process still has it: its command buffer and its session have ended.
#[test]
fn work_that_is_abandoned_never_ends() {
    if !is_child("pulse::work_that_is_abandoned_never_ends", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let pulse = Arc::<Pulse>::default();
    let counts = observed(&pulse);
    rig.queue.set_pulse(&pulse);
    let module = rig.load(ENDLESS.as_bytes()).unwrap();
    let one = ([1; 3], [1; 3]);
    rig.launch(&module, "endless", one, &[]).unwrap();
    assert_eq!(read(&counts), [0, 0], "nobody watches");
    // What is under way already is one piece.
    pulse.want(true);
    assert_eq!(rig.queue.poll().unwrap(), Progress::Busy);
    assert_eq!(read(&counts), [1, 0]);
    rig.stop.store(true, Ordering::SeqCst);
    assert!(!rig.queue.close(), "the queue is left with it");
    assert_eq!(read(&counts), [1, 0]);
}

#[test]
fn a_fault_ends_all_work() {
    if !is_child("pulse::a_fault_ends_all_work", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let pulse = Arc::<Pulse>::default();
    let counts = observed(&pulse);
    pulse.want(true);
    rig.queue.set_pulse(&pulse);
    let module = rig.load(COUNT.as_bytes()).unwrap();
    let (one, wild) = (([1; 3], [1; 3]), 0x10_0000_0000_u64.to_le_bytes());
    rig.launch(&module, "count", one, &wild).unwrap();
    assert!(rig.queue.finish().is_err());
    assert!(rig.queue.close());
    assert_eq!(read(&counts), [1, 1]);
}
