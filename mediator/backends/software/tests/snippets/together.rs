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
