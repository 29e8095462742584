//! What threads do together: barriers, shuffles, votes, atomics.

use causeway_protocol::Access;

use crate::each;
use crate::support::{Device, kernel};

#[test]
fn barriers_order_shared_memory() {
    let body = ".shared .align 4 .b32 s[256]; mov.u64 %d1, s; mul.wide.u32 %d2, %tid, 4; \
        add.u64 %d3, %d1, %d2;\n\
        st.shared.u32 [%d3], %tid; bar.sync 0; sub.u32 %r1, 255, %tid; mul.wide.u32 %d2, %r1, 4; \
        add.u64 %d3, %d1, %d2;\n\
        ld.shared.u32 %r2, [%d3]; st.global.u32 [%o], %r2;";
    assert_eq!(each(body, 256, &[]), (0..256).rev().collect::<Vec<u32>>());
}

#[test]
fn barriers_reduce_and_count() {
    let body = "setp.lt.u32 %p1, %tid, 50; bar.red.popc.u32 %r1, 0, %p1; \
        bar.red.and.pred %p2, 1, %p1;\n\
        bar.red.or.pred %p3, 2, %p1; selp.u32 %r2, 1000, 0, %p2; selp.u32 %r3, 500, 0, %p3; \
        add.u32 %r1, %r1, %r2;\n\
        add.u32 %r1, %r1, %r3; st.global.u32 [%o], %r1;";
    assert_eq!(each(body, 100, &[]), vec![550; 100]);
    // One warp produces, one consumes.
    let body = ".shared .b32 s; setp.lt.u32 %p1, %tid, 32; @%p1 bra producer;\n\
        bar.sync 3, 64; ld.shared.u32 %r1, [s]; st.global.u32 [%o], %r1; ret;\n\
        producer: st.shared.u32 [s], 77; bar.arrive 3, 64; st.global.u32 [%o], 5;";
    let found = each(body, 64, &[]);
    assert_eq!((found[0], found[31], found[32], found[63]), (5, 5, 77, 77));
    // Threads that have ended are not waited for; lanes of one warp may arrive from different
    // places.
    let body = "setp.ge.u32 %p1, %tid, 48; @%p1 exit; setp.lt.u32 %p2, %tid, 10; @%p2 bra a; \
        bar.sync 0; bra end;\n\
        a: bar.sync 0; end: st.global.u32 [%o], 1;";
    assert_eq!(each(body, 64, &[]).iter().sum::<u32>(), 48);
}

#[test]
fn shuffles() {
    for (form, want) in [
        (
            "up.b32 %r1|%p1, %tid, 3, 0",
            (|t| if t >= 3 { t - 3 } else { t + 1000 }) as fn(u32) -> u32,
        ),
        ("down.b32 %r1|%p1, %tid, 3, 31", |t| {
            if t < 29 { t + 3 } else { t + 1000 }
        }),
        ("bfly.b32 %r1|%p1, %tid, 5, 31", |t| t ^ 5),
        ("idx.b32 %r1|%p1, %tid, 7, 31", |_| 7),
        ("idx.b32 %r1|%p1, %tid, 2, 0x181f", |t| (t & !7) + 2),
        ("down.b32 %r1|%p1, %tid, 3, 0x1c1f", |t| {
            if t % 4 < 1 { t + 3 } else { t + 1000 }
        }),
    ] {
        let body =
            format!("shfl.sync.{form}, -1; @!%p1 add.u32 %r1, %r1, 1000; st.global.u32 [%o], %r1;");
        assert_eq!(
            each(&body, 32, &[]),
            (0..32).map(want).collect::<Vec<_>>(),
            "{form}"
        );
    }
}

#[test]
fn votes_matches_and_reductions() {
    let body = "setp.gt.u32 %p1, %tid, 27; vote.sync.ballot.b32 %r1, %p1, -1; \
        vote.sync.any.pred %p2, %p1, -1;\n\
        vote.sync.all.pred %p3, !%p1, -1; selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 1, 0, %p3; \
        add.u32 %r1, %r1, %r2;\n\
        add.u32 %r1, %r1, %r3; st.global.u32 [%o], %r1;";
    assert_eq!(each(body, 32, &[]), vec![0xf000_0001; 32]);
    let body = "and.b32 %r1, %tid, 3; match.any.sync.b32 %r2, %r1, -1; st.global.u32 [%o], %r2;";
    assert_eq!(
        each(body, 32, &[])[..4],
        [0x1111_1111, 0x2222_2222, 0x4444_4444, 0x8888_8888]
    );
    let body = "redux.sync.add.u32 %r1, %tid, -1; redux.sync.max.s32 %r2, %tid, -1; \
        add.u32 %r1, %r1, %r2;\n\
        elect.sync %r3|%p1, -1; @%p1 add.u32 %r1, %r1, 1000; st.global.u32 [%o], %r1;";
    let found = each(body, 32, &[]);
    assert_eq!((found[0], found[1]), (1527, 527));
    // The two halves of a warp, each with its own member mask, from different places.
    let body = "setp.lt.u32 %p1, %tid, 16; @%p1 bra low;\n\
        redux.sync.add.u32 %r1, %tid, 0xffff0000; bra end;\n\
        low: redux.sync.add.u32 %r1, %tid, 0x0000ffff;\n\
        end: bar.warp.sync -1; st.global.u32 [%o], %r1;";
    let found = each(body, 32, &[]);
    assert_eq!((found[0], found[31]), (120, 376));
}

#[test]
fn atomics_of_all_kinds() {
    let minus = |n: u32| n.wrapping_neg();
    for (operation, start, operands, want) in [
        ("add.u32", 5, "%t", 5 + 496),
        ("min.s32", 5, "-7", minus(7)),
        ("max.u32", 5, "%t", 31),
        ("inc.u32", 0, "9", 2),
        ("dec.u32", 0, "9", 8),
        ("and.b32", u32::MAX, "%t", 0),
        ("or.b32", 0, "%t", 31),
        ("xor.b32", 0, "%t", 0),
        ("exch.b32", 0, "3", 3),
        ("cas.b32", 4, "4, 99", 99),
    ] {
        let body = format!("atom.global.{operation} %r1, [%out], {operands};");
        let mut device = Device::new(1);
        let module = device.load(&kernel("", &body)).unwrap();
        let out = device.buffer(4096, Access::ReadWrite);
        out.write_words(&[start]);
        let given = [out.va.to_le_bytes(), [0; 8]].concat();
        device
            .launch(&module, "k", ([1, 1, 1], [32, 1, 1], 0), &given)
            .unwrap();
        assert_eq!(out.words(1), [want], "{operation}");
    }
    let body = "red.global.add.f32 [%out], 0f3F000000; add.u64 %d1, %out, 8; \
        mov.f64 %g1, 0d3FE0000000000000;\n\
        red.global.add.f64 [%d1], %g1; atom.global.add.u64 %d2, [%out+16], 3; \
        red.global.add.noftz.f16x2 [%out+24], 0x3c003c00;\n\
        cvt.u16.u32 %h1, 0; cvt.u16.u32 %h2, 7; atom.global.cas.b16 %h3, [%out+30], %h1, %h2;";
    let mut device = Device::new(2);
    let found = device.run(body, (16, 64), &[], 8).unwrap();
    assert_eq!(f32::from_bits(found[0]), 512.0);
    assert_eq!(
        f64::from_bits(u64::from(found[3]) << 32 | u64::from(found[2])),
        512.0
    );
    assert_eq!((found[4], found[6], found[7]), (3072, 0x6400_6400, 7 << 16));
    let body = ".shared .b32 s; st.shared.u32 [s], 0; bar.sync 0; \
        atom.shared.add.u32 %r1, [s], 2; bar.sync 0;\n\
        ld.shared.u32 %r2, [s]; st.global.u32 [%o], %r2;";
    assert_eq!(each(body, 96, &[]), vec![192; 96]);
}

/// Each phase: threads store, arrive, wait for the phase, and load what another warp stored.
#[test]
fn an_mbarrier_orders_phases_of_all_warps() {
    let wait = "W: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [bar], %r5; \
        @!%p2 bra W;";
    let token = "W: mbarrier.test_wait.shared.b64 %p2, [bar], %d5; @!%p2 bra W;";
    for wait in [wait, token] {
        let body = format!(
            ".shared .align 8 .b64 bar; .shared .align 4 .b32 s[256]; \
             setp.ne.u32 %p1, %tid, 0; @%p1 bra READY; mbarrier.init.shared::cta.b64 [bar], 128;\n\
             READY: bar.sync 0; mov.u64 %d1, s; mul.wide.u32 %d2, %tid, 4; add.u64 %d3, %d1, %d2; \
             xor.b32 %r1, %tid, 96; mul.wide.u32 %d2, %r1, 4; add.u64 %d4, %d1, %d2;\n\
             mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0;\n\
             NEXT: mad.lo.u32 %r2, %r4, 1000, %tid; st.shared.u32 [%d3], %r2; \
             mbarrier.arrive.release.cta.shared::cta.b64 %d5, [bar];\n\
             {wait}\n\
             ld.shared.u32 %r3, [%d4]; add.u32 %r6, %r6, %r3; bar.sync 1; xor.b32 %r5, %r5, 1; \
             add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 5; @%p3 bra NEXT;\n\
             st.global.u32 [%o], %r6;"
        );
        let wanted: Vec<u32> = (0..128).map(|t| 5 * (t ^ 96) + 10_000).collect();
        assert_eq!(each(&body, 128, &[]), wanted);
    }
}

#[test]
fn an_mbarrier_counts_bytes_and_who_leaves() {
    let body = ".shared .align 8 .b64 bar; mbarrier.init.shared.b64 [bar], 2; \
        mbarrier.arrive.expect_tx.shared.b64 %d1, [bar], 64; mbarrier.pending_count.b64 %r1, %d1;\n\
        mbarrier.arrive_drop.shared.b64 %d2, [bar]; mbarrier.pending_count.b64 %r2, %d2; \
        mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; selp.u32 %r3, 1, 0, %p1;\n\
        mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 64; \
        mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; selp.u32 %r4, 10, 0, %p1; \
        cp.async.mbarrier.arrive.shared.b64 [bar]; \
        mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1; selp.u32 %r5, 100, 0, %p1;\n\
        cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; \
        mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1; selp.u32 %r6, 1000, 0, %p1;\n\
        mbarrier.inval.shared.b64 [bar]; add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; \
        add.u32 %r3, %r3, %r6; mad.lo.u32 %r3, %r1, 10000, %r3; mad.lo.u32 %r3, %r2, 100000, %r3; \
        st.global.u32 [%o], %r3;";
    assert_eq!(each(body, 1, &[]), [121_010]);
}

#[test]
fn an_mbarrier_is_in_shared_memory() {
    let mut device = Device::new(1);
    let body = "mbarrier.init.global.b64 [%o], 1;";
    let refused = device.load(&kernel("", body)).err().expect("it is refused");
    assert!(refused.to_string().contains("mbarrier"), "{refused}");
    let body = "mbarrier.init.b64 [%out], 1;";
    assert!(device.run(body, (1, 1), &[], 2).is_ok());
}

/// One block stores vectors of equal values, another looks at them meanwhile.
#[test]
fn strong_vectors_are_stored_and_loaded_at_once() {
    let check = "xor.b32 %r3, %r1, %r2; or.b32 %r7, %r7, %r3;";
    let wide = "xor.b64 %d3, %d1, %d2; cvt.u32.u64 %r3, %d3; or.b32 %r7, %r7, %r3;";
    let four = "xor.b32 %r3, %r1, %r2; or.b32 %r7, %r7, %r3; xor.b32 %r3, %r8, %r9; \
        or.b32 %r7, %r7, %r3; xor.b32 %r3, %r1, %r9; or.b32 %r7, %r7, %r3;";
    let cases = [
        (
            "st.relaxed.gpu.global.v2.u32 [%out], {%r4, %r4};",
            "ld.relaxed.gpu.global.v2.u32 {%r1, %r2}, [%out];",
            check,
        ),
        (
            "cvt.u64.u32 %d4, %r4; st.volatile.global.v2.b64 [%out], {%d4, %d4};",
            "ld.volatile.global.v2.b64 {%d1, %d2}, [%out];",
            wide,
        ),
        (
            "st.release.gpu.v4.b32 [%out], {%r4, %r4, %r4, %r4};",
            "ld.acquire.gpu.v4.b32 {%r1, %r2, %r8, %r9}, [%out];",
            four,
        ),
    ];
    for (store, load, differ) in cases {
        let body = format!(
            "mov.u32 %r4, 0; mov.u32 %r7, 0; mov.u32 %r5, %ctaid.x; setp.ne.u32 %p1, %r5, 0; \
             @%p1 bra READ;\n\
             WRITE: {store} add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 100000; @%p2 bra WRITE; \
             ret;\n\
             READ: {load} {differ} add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 100000; \
             @%p2 bra READ;\n\
             st.global.u32 [%out+16], %r7;"
        );
        let found = Device::new(2).run(&body, (2, 1), &[], 5).unwrap();
        assert_eq!((found[0], found[4]), (99_999, 0), "{load}");
    }
}
