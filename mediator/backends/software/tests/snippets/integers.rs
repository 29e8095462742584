//! Integers, bits and predicates.

use crate::{compute, compute64};

#[test]
fn integers() {
    let minus = |n: u32| n.wrapping_neg();
    for (body, input, want) in [
        (
            "add.sat.s32 %r4, %r1, %r2;",
            [0x7fff_ffff, 5, 0],
            0x7fff_ffff,
        ),
        ("sub.u16 %h1, 3, 5; cvt.u32.u16 %r4, %h1;", [0; 3], 0xfffe),
        ("mul.hi.u32 %r4, %r1, %r2;", [0x8000_0000, 6, 0], 3),
        ("mul.hi.s32 %r4, %r1, %r2;", [minus(1), 6, 0], minus(1)),
        ("mad.lo.s32 %r4, %r1, %r2, %r3;", [minus(3), 5, 100], 85),
        ("mad.hi.u32 %r4, %r1, %r2, %r3;", [0x8000_0000, 4, 7], 9),
        ("mul.wide.s16 %r4, %h1, %h2;", [0; 3], 0),
        (
            "cvt.u16.u32 %h1, %r1; mul.wide.s16 %r4, %h1, 3;",
            [0xffff, 0, 0],
            minus(3),
        ),
        ("div.s32 %r4, %r1, %r2;", [minus(7), 2, 0], minus(3)),
        ("rem.s32 %r4, %r1, %r2;", [minus(7), 2, 0], minus(1)),
        ("abs.s32 %r4, %r1;", [minus(9), 0, 0], 9),
        ("neg.s32 %r4, %r1;", [9, 0, 0], minus(9)),
        ("min.s32 %r4, %r1, %r2;", [minus(9), 1, 0], minus(9)),
        ("min.u32 %r4, %r1, %r2;", [minus(9), 1, 0], 1),
        ("max.s32 %r4, %r1, %r2;", [minus(9), 1, 0], 1),
        ("sad.s32 %r4, %r1, %r2, %r3;", [minus(4), 3, 10], 17),
        ("mad24.lo.u32 %r4, %r1, %r2, %r3;", [0x0100_0003, 5, 1], 16),
        (
            "dp4a.u32.u32 %r4, %r1, %r2, %r3;",
            [0x0102_0304, 0x0101_0101, 5],
            15,
        ),
        (
            "add.cc.u32 %r5, %r1, %r2; addc.u32 %r4, %r3, 0;",
            [u32::MAX, 1, 7],
            8,
        ),
        (
            "sub.cc.u32 %r5, %r1, %r2; subc.u32 %r4, %r3, 0;",
            [0, 1, 7],
            6,
        ),
        (
            "mad.lo.cc.u32 %r5, %r1, %r2, %r3; madc.hi.u32 %r4, %r1, %r2, 0;",
            [u32::MAX, u32::MAX, u32::MAX],
            u32::MAX,
        ),
    ] {
        assert_eq!(compute(body, input), want, "{body}");
    }
}

#[test]
fn packed_elements() {
    // The bytes of the first are 0x80, 0xff, 0x01, 0x7f from the top.
    let input = [0x80ff_017f, 0x7f01_ff80, 100];
    for (instruction, want) in [
        ("vadd4.u32.u32.u32", 0xff00_00ff),
        ("vadd4.u32.u32.u32.sat", 0xffff_ffff),
        ("vadd4.s32.s32.s32.sat", 0xff00_00ff),
        ("vsub4.s32.s32.s32", 0x01fe_02ff),
        ("vsub4.s32.s32.s32.sat", 0x80fe_027f),
        ("vsub4.u32.u32.u32.sat", 0x01fe_0000),
        ("vavrg4.u32.u32.u32", 0x8080_8080),
        ("vavrg4.s32.s32.s32", 0xff00_00ff),
        ("vabsdiff4.u32.u32.u32", 0x01fe_fe01),
        ("vabsdiff4.u32.s32.s32", 0xff02_02ff),
        ("vabsdiff4.s32.s32.s32.sat", 0x7f02_027f),
        // 1 + 254 + 254 + 1 more than the third source.
        ("vabsdiff4.u32.u32.u32.add", 610),
        ("vmin4.u32.u32.u32", 0x7f01_017f),
        ("vmin4.s32.s32.s32", 0x80ff_ff80),
        ("vmax4.s32.s32.u32", 0x7f01_ff80),
        // -128 - 1 - 1 - 128
        ("vmin4.s32.s32.s32.add", 100_u32.wrapping_sub(258)),
        ("vset4.u32.u32.gt", 0x0101_0000),
        ("vset4.s32.s32.gt", 0x0000_0101),
        ("vset4.u32.u32.ne.add", 104),
        ("vadd2.u32.u32.u32", 0x0000_00ff),
        ("vadd2.u32.u32.u32.sat", 0xffff_ffff),
        ("vsub2.s32.s32.s32.sat", 0x8000_01ff),
        ("vavrg2.s32.s32.s32", 0x0000_0080),
        ("vabsdiff2.u32.u32.u32.add", 100 + 510 + 65_025),
        ("vset2.s32.s32.lt", 0x0001_0000),
    ] {
        let body = format!("{instruction} %r4, %r1, %r2, %r3;");
        assert_eq!(compute(&body, input), want, "{body}");
    }
}

#[test]
fn long_integers() {
    assert_eq!(compute64("mul.hi.u64 %d4, %d1, %d2;", [1 << 63, 6, 0]), 3);
    assert_eq!(
        compute64("mad.lo.s64 %d4, %d1, %d2, %d3;", [5, u64::MAX, 7]),
        2
    );
    assert_eq!(
        compute64("mov.u32 %r1, -3; mul.wide.s32 %d4, %r1, 7;", [0; 3]),
        -21_i64 as u64
    );
    assert_eq!(
        compute64("mov.u32 %r1, -3; mad.wide.u32 %d4, %r1, 2, %d3;", [0, 0, 1]),
        0x1_ffff_fffb
    );
    assert_eq!(
        compute64("rem.u64 %d4, %d1, %d2;", [1 << 40, 1000, 0]),
        (1 << 40) % 1000
    );
}

#[test]
fn bits() {
    for (body, input, want) in [
        ("shl.b32 %r4, %r1, %r2;", [1, 32, 0], 0),
        ("shr.s32 %r4, %r1, %r2;", [0x8000_0000, 99, 0], u32::MAX),
        ("shr.u32 %r4, %r1, %r2;", [0x8000_0000, 31, 0], 1),
        ("shf.l.wrap.b32 %r4, %r1, %r2, %r3;", [0x8000_0000, 1, 1], 3),
        (
            "shf.r.clamp.b32 %r4, %r1, %r2, %r3;",
            [1, 0xabcd, 32],
            0xabcd,
        ),
        (
            "lop3.b32 %r4, %r1, %r2, %r3, 0x96;",
            [0xf0, 0x3c, 0xff],
            0xf0 ^ 0x3c ^ 0xff,
        ),
        (
            "lop3.b32 %r4, %r1, %r2, %r3, 0x1e;",
            [0xf0, 0x3c, 0x55],
            0xf0 ^ (0x3c | 0x55),
        ),
        (
            "prmt.b32 %r4, %r1, %r2, 0x0123;",
            [0x1122_3344, 0, 0],
            0x4433_2211,
        ),
        ("bfe.u32 %r4, %r1, 8, 12;", [0xabcd_ef12, 0, 0], 0xdef),
        ("bfe.s32 %r4, %r1, 8, 12;", [0xabcd_ef12, 0, 0], 0xffff_fdef),
        (
            "bfi.b32 %r4, %r1, %r2, 4, 8;",
            [0xab, 0xffff_ffff, 0],
            0xffff_fabf,
        ),
        ("bfind.u32 %r4, %r1;", [0x10, 0, 0], 4),
        ("bfind.shiftamt.u32 %r4, %r1;", [0x10, 0, 0], 27),
        ("brev.b32 %r4, %r1;", [1, 0, 0], 0x8000_0000),
        ("popc.b32 %r4, %r1;", [0xff0f, 0, 0], 12),
        ("clz.b32 %r4, %r1;", [0xff, 0, 0], 24),
        ("cnot.b32 %r4, %r1;", [0, 0, 0], 1),
        ("not.b32 %r4, %r1;", [0xf, 0, 0], 0xffff_fff0),
        ("bmsk.clamp.b32 %r4, 4, 8;", [0; 3], 0xff0),
        (
            "mov.b32 {%h1, %h2}, %r1; mov.b32 %r4, {%h2, %h1};",
            [0x1234_5678, 0, 0],
            0x5678_1234,
        ),
    ] {
        assert_eq!(compute(body, input), want, "{body}");
    }
}

#[test]
fn long_bits() {
    let swapped = "mov.b64 {%r1, %r2}, %d1; mov.b64 %d4, {%r2, %r1};";
    assert_eq!(
        compute64(swapped, [0x1111_2222_3333_4444, 0, 0]),
        0x3333_4444_1111_2222
    );
    let turned = "mov.b64 {%h1,%h2,%h3,%h4}, %d1; mov.b64 %d4, {%h4,%h3,%h2,%h1};";
    assert_eq!(
        compute64(turned, [0x1111_2222_3333_4444, 0, 0]),
        0x4444_3333_2222_1111
    );
    assert_eq!(
        compute64("bfi.b64 %d4, %d1, %d2, 60, 8;", [0xff, 0, 0]),
        0xf << 60
    );
}

#[test]
fn conversions_between_integers() {
    for (body, input, want) in [
        ("cvt.s32.s8 %r4, %r1;", [0x1fe, 0, 0], 0xffff_fffe),
        ("cvt.u32.u8 %r4, %r1;", [0x1fe, 0, 0], 0xfe),
        ("cvt.s8.s32 %r4, %r1;", [0x80, 0, 0], 0xffff_ff80),
        ("cvt.sat.u8.s32 %r4, %r1;", [300, 0, 0], 255),
        (
            "cvt.sat.s8.s32 %r4, %r1;",
            [(-300_i32) as u32, 0, 0],
            0xffff_ff80,
        ),
        ("cvt.sat.u32.s32 %r4, %r1;", [(-300_i32) as u32, 0, 0], 0),
        (
            "cvt.s64.s32 %d1, %r1; shr.u64 %d2, %d1, 32; cvt.u32.u64 %r4, %d2;",
            [(-2_i32) as u32, 0, 0],
            u32::MAX,
        ),
        (
            "cvt.u64.s8 %d1, %r1; shr.u64 %d2, %d1, 32; cvt.u32.u64 %r4, %d2;",
            [0x80, 0, 0],
            u32::MAX,
        ),
        (
            "cvt.u64.u16 %d1, %r1; cvt.u32.u64 %r4, %d1;",
            [0x12345, 0, 0],
            0x2345,
        ),
        (
            "cvt.pack.sat.u8.s32.b32 %r4, %r1, %r2, %r3;",
            [300, 7, 0x1234],
            0x1234_ff07,
        ),
    ] {
        assert_eq!(compute(body, input), want, "{body}");
    }
}

#[test]
fn comparisons_and_predicates() {
    for (body, input, want) in [
        ("setp.lt.s32 %p1, %r1, %r2;", [u32::MAX, 0, 0], 1),
        ("setp.lt.u32 %p1, %r1, %r2;", [u32::MAX, 0, 0], 0),
        ("setp.hs.u32 %p1, %r1, %r2;", [5, 5, 0], 1),
        ("setp.ls.u32 %p1, %r1, %r2;", [6, 5, 0], 0),
        ("setp.gt.s16 %p1, %h1, -1;", [0, 0, 0], 1),
        (
            "setp.eq.u32 %p2, 1, 1; setp.lt.and.u32 %p1, %r1, %r2, %p2;",
            [1, 2, 0],
            1,
        ),
        (
            "setp.eq.u32 %p2, 1, 1; setp.lt.and.u32 %p1, %r1, %r2, !%p2;",
            [1, 2, 0],
            0,
        ),
        (
            "setp.eq.u32 %p2, 1, 1; setp.lt.xor.u32 %p1, %r1, %r2, %p2;",
            [1, 2, 0],
            0,
        ),
        (
            "setp.eq.u32 %p2, 1, 1; setp.eq.u32 %p3, 1, 2; or.pred %p1, %p3, %p2; \
             not.pred %p1, %p1;",
            [0; 3],
            0,
        ),
        ("testp.notanumber.f32 %p1, 0f7FC00000;", [0; 3], 1),
    ] {
        let body = format!("{body} selp.u32 %r4, 1, 0, %p1;");
        assert_eq!(compute(&body, input), want, "{body}");
    }
}
