use std::sync::atomic::Ordering;

use causeway_bench_workloads::Kernel;
use causeway_bench_workloads::host_interface::forward as wire;

use super::{AREA, Machine};

/// Memory of so many bytes: identifier and address.
fn allocate(machine: &Machine, bytes: u64) -> (u64, u64) {
    assert_eq!(machine.calls(&[&[wire::ALLOCATE, bytes]]), 0);
    (machine.result(0), machine.result(1))
}

#[test]
fn a_batch_is_executed_in_order() {
    let machine = Machine::new();
    let vectors: Vec<_> = (0..3).map(|_| allocate(&machine, 4096)).collect();
    let [(a, a_at), (b, b_at), (c, c_at)] = vectors[..] else {
        panic!("three vectors");
    };
    let pair = |x: f32, y: f32| u64::from(x.to_bits()) | u64::from(y.to_bits()) << 32;
    let shape = wire::pair([1, 1]);
    let block = wire::pair([32, 1]);
    let launch = [
        wire::LAUNCH,
        Kernel::VectorAdd as u64,
        shape,
        block,
        a_at,
        b_at,
        c_at,
        2,
    ];
    let status = machine.calls(&[
        &[wire::COPY_IN, a, 0, 8, pair(1.0, 2.0)],
        &[wire::COPY_IN, b, 0, 8, pair(0.5, 40.0)],
        &launch,
        &[wire::SYNCHRONIZE],
        &[wire::COPY_OUT, c, 0, 8],
    ]);
    assert_eq!(status, 0);
    assert_eq!(machine.result(0), pair(1.5, 42.0));
    assert_eq!(
        machine.calls(&[&[wire::FREE, a], &[wire::FREE, a]]),
        2,
        "freed twice"
    );
}

#[test]
fn copies_by_reference_are_put_together_of_their_pieces() {
    let machine = Machine::new();
    let (id, _) = allocate(&machine, 4096);
    machine.write_words(0x2000, &[1, 2]);
    machine.write_words(0x3000, &[3]);
    let pieces = [wire::COPY_IN_BY_REFERENCE, id, 8, 0x2000, 16, 0x3000, 8];
    let back = [wire::COPY_OUT_BY_REFERENCE, id, 16, 0x4000, 8, 0x5000, 8];
    assert_eq!(machine.calls(&[&pieces, &back]), 0);
    assert_eq!((machine.word(0x4000), machine.word(0x5000)), (2, 3));
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_behind_it_is_done() {
    let machine = Machine::new();
    let (id, _) = allocate(&machine, 4096);
    let ram_end = 8 << 20;
    let huge = u64::MAX - 7;
    let nothing = Kernel::Nothing as u64;
    let page = wire::INLINE_BYTES_MAX as u64;
    let hostile: [&[u64]; 20] = [
        &[0],
        &[99, 1, 2],
        &[wire::ALLOCATE],
        &[wire::ALLOCATE, u64::MAX],
        &[wire::ALLOCATE, 2 << 30],
        &[wire::FREE, 77],
        &[wire::COPY_IN, 77, 0, 8, 1],
        &[wire::COPY_IN, id, 4096, 8, 1],
        &[wire::COPY_IN, id, huge, 8, 1],
        &[wire::COPY_IN, id, 0, 16, 1],
        &[wire::COPY_OUT, id, 0, page + 8],
        &[wire::COPY_OUT, id, 0, 12],
        &[wire::COPY_OUT, id, huge, 8],
        &[wire::COPY_IN_BY_REFERENCE, id, 0, ram_end - 8, 16],
        &[wire::COPY_OUT_BY_REFERENCE, id, 0, huge, 16],
        &[wire::COPY_OUT_BY_REFERENCE, id, 0],
        &[wire::COPY_OUT_BY_REFERENCE, id, 0, 0x2000],
        &[
            wire::LAUNCH,
            nothing,
            wire::pair([1, 0]),
            wire::pair([1, 1]),
        ],
        &[wire::LAUNCH, 77, 1, 1],
        &[wire::LAUNCH, nothing, 1, 1, 5],
    ];
    for call in hostile {
        let behind = [wire::COPY_IN, id, 0, 8, 0xbad];
        assert_eq!(machine.calls(&[call, &behind]), 1, "{call:x?}");
    }
    assert_eq!(machine.calls(&[&[wire::COPY_OUT, id, 0, 8]]), 0);
    assert_eq!(machine.result(0), 0);
}

#[test]
fn a_batch_ends_when_the_vm_is_to_end() {
    let machine = Machine::new();
    let (id, _) = allocate(&machine, 4096);
    machine.stop.store(true, Ordering::Relaxed);
    let copy = [wire::COPY_IN_BY_REFERENCE, id, 0, 0x2000, 8];
    assert_eq!(machine.calls(&[&copy]), 1);
}

#[test]
fn headers_and_areas_that_reach_too_far_are_refused() {
    let machine = Machine::new();
    for header in [
        0,
        wire::header(wire::SYNCHRONIZE, 2),
        wire::header(wire::SYNCHRONIZE, 1 << 31),
    ] {
        assert_eq!(machine.batch(&[header]), 1, "{header:#x}");
    }
    machine.write_words(AREA, &[wire::CALL_WORDS as u64 + 1, 7]);
    machine.kick(AREA);
    assert_eq!(machine.word(AREA + 8 * wire::STATUS as u64), 1, "no old 0");
    // No RAM, and its last page.
    machine.kick(u64::from(u32::MAX) * 4096);
    machine.write_words((8 << 20) - 4096, &[8]);
    machine.kick((8 << 20) - 4096);
}
