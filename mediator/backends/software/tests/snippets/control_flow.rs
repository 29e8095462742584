//! Branches, loops, calls, and lanes that part and meet.

use crate::each;
use crate::support::{Device, kernel};

#[test]
fn lanes_part_and_meet_again() {
    let body = "and.b32 %r1, %tid, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra even;\n\
        and.b32 %r2, %tid, 2; setp.eq.u32 %p2, %r2, 0; mov.u32 %r3, 100; @%p2 bra join; \
        mov.u32 %r3, 200; bra join;\n\
        even: mov.u32 %r3, 300;\n\
        join: activemask.b32 %r4; popc.b32 %r4, %r4; add.u32 %r3, %r3, %r4; \
        st.global.u32 [%o], %r3;";
    let want = |t: u32| match t % 4 {
        0 | 2 => 332,
        1 => 132,
        _ => 232,
    };
    assert_eq!(each(body, 32, &[]), (0..32).map(want).collect::<Vec<_>>());
}

#[test]
fn loops_of_different_length() {
    let body = "mov.u32 %r1, 0; mov.u32 %r2, 0;\n\
        again: add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %tid; \
        @%p1 bra again;\n\
        st.global.u32 [%o], %r1;";
    assert_eq!(
        each(body, 70, &[]),
        (0..70).map(|t| t * (t + 1) / 2).collect::<Vec<u32>>()
    );
}

#[test]
fn a_lane_that_spins_lets_the_one_run_that_it_waits_for() {
    // A lock taken by each lane of a warp in turn, with a critical section behind the spinning.
    let before = ".global .u32 lock; .global .u32 counter;";
    let body = "spin: atom.global.cas.b32 %r1, [lock], 0, 1; setp.ne.u32 %p1, %r1, 0; \
        @%p1 bra spin;\n\
        ld.global.u32 %r2, [counter]; add.u32 %r2, %r2, 1; st.global.u32 [counter], %r2;\n\
        membar.gl; atom.global.exch.b32 %r3, [lock], 0; st.global.u32 [%o], %r2;";
    let mut device = Device::new(2);
    let module = device.load(&kernel(before, body)).unwrap();
    let mut found = device.run_module(&module, (2, 40), &[], 80).unwrap();
    found.sort_unstable();
    assert_eq!(found, (1..=80).collect::<Vec<u32>>());
}

#[test]
fn functions_are_called_from_different_places_and_recursively() {
    let before = ".func (.param .b32 result) scale(.param .b32 a, .param .align 8 .b8 pair[16])\n\
        { .reg .b32 %r<5>; .reg .b64 %d<2>; ld.param.u32 %r1, [a]; ld.param.u64 %d1, [pair+8]; \
        cvt.u32.u64 %r2, %d1;\n\
          mul.lo.u32 %r3, %r1, %r2; st.param.b32 [result], %r3; ret; }\n\
        .func (.reg .b32 sum) triangle(.reg .b32 n)\n\
        { .reg .pred %p; .reg .b32 %r<3>; mov.u32 sum, 0; setp.eq.u32 %p, n, 0; @%p ret;\n\
          sub.u32 %r1, n, 1; call (%r2), triangle, (%r1); add.u32 sum, %r2, n; ret; }";
    let call = "{ .param .b32 a; .param .align 8 .b8 p[16]; .param .b32 back; \
        st.param.b32 [a], %tid; st.param.b64 [p+8], %d1;\n\
        call.uni (back), scale, (a, p); ld.param.b32 %r1, [back]; }";
    let body = format!(
        "and.b32 %r2, %tid, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra even; mov.u64 %d1, 3; \
         {call} bra join;\n\
         even: mov.u64 %d1, 5; {call} join: and.b32 %r3, %tid, 15; call (%r4), triangle, (%r3); \
         mad.lo.u32 %r1, %r4, 1000, %r1;\n\
         st.global.u32 [%o], %r1;"
    );
    let mut device = Device::new(1);
    let module = device.load(&kernel(before, &body)).unwrap();
    let found = device.run_module(&module, (1, 64), &[], 64).unwrap();
    let want = |t: u32| {
        let n = t & 15;
        n * (n + 1) / 2 * 1000 + t * if t.is_multiple_of(2) { 5 } else { 3 }
    };
    assert_eq!(found, (0..64).map(want).collect::<Vec<_>>());
}

#[test]
fn jumps_go_through_tables() {
    let body = "ts: .branchtargets zero, one, two; rem.u32 %r1, %tid, 3; brx.idx %r1, ts;\n\
        zero: mov.u32 %r2, 10; bra end; one: mov.u32 %r2, 20; bra end; two: mov.u32 %r2, 30;\n\
        end: st.global.u32 [%o], %r2;";
    assert_eq!(
        each(body, 32, &[]),
        (0..32).map(|t| 10 + t % 3 * 10).collect::<Vec<u32>>()
    );
}

#[test]
fn special_registers() {
    let body = "mov.u32 %r1, %laneid; mov.u32 %r2, %warpid; mad.lo.u32 %r3, %r2, 32, %r1; \
        mov.u32 %r4, %nwarpid;\n\
        mul.lo.u32 %r4, %r4, 1000; add.u32 %r3, %r3, %r4; mov.u32 %r5, %lanemask_lt; \
        popc.b32 %r5, %r5; sub.u32 %r3, %r3, %r5;\n\
        mov.u64 %d1, %clock64; mov.u64 %d2, %clock64; setp.ge.u64 %p1, %d1, %d2; \
        @%p1 mov.u32 %r3, 0; mov.u64 %d3, %globaltimer;\n\
        st.global.u32 [%o], %r3;";
    let found = each(body, 96, &[]);
    assert_eq!((found[0], found[33], found[95]), (3000, 3032, 3064));
}
