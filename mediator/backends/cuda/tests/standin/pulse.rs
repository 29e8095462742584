//! The end of each piece of work is seen while somebody watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::backend::Pulse;
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
/// More than may be under way while somebody watches.
const LAUNCHES: u64 = 300;

/// Launches kernels, and returns how many ends were seen before anybody asked for the last one.
fn ends_seen(rig: &mut Rig, is_wanted: bool) -> u64 {
    let ends = Arc::<AtomicU64>::default();
    let pulse = Arc::<Pulse>::default();
    let seen = Arc::clone(&ends);
    pulse.observe(move |beats| seen.store(beats, Ordering::Relaxed));
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
    let before = ends.load(Ordering::Relaxed);
    rig.wait().unwrap();
    assert_eq!(host(&word.memory).word(0), LAUNCHES);
    assert_eq!(ends.load(Ordering::Relaxed) != 0, is_wanted);
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
