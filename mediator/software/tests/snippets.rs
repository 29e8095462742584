//! Small pieces of PTX, each checked against what the ISA says it computes.

mod support;

use causeway_protocol::Access;
use support::{Device, kernel};

/// Runs `body` on `threads` threads of one block; each has a word of input and a word of output.
fn each(body: &str, threads: u32, input: &[u32]) -> Vec<u32> {
    let mut device = Device::new(1);
    device
        .run(body, (1, threads), input, threads as usize)
        .unwrap_or_else(|fault| panic!("{fault}\n{body}"))
}

/// One thread: three words in (`%r1`, `%r2`, `%r3`), one word (`%r4`) out.
fn compute(body: &str, input: [u32; 3]) -> u32 {
    let body = format!(
        "ld.global.u32 %r1, [%in]; ld.global.u32 %r2, [%in+4]; ld.global.u32 %r3, [%in+8];\n\
         {body}\n st.global.u32 [%out], %r4;"
    );
    each(&body, 1, &input)[0]
}

/// The same for doubles `%d1`, `%d2` and `%d3`, `%d4` out.
fn compute64(body: &str, input: [u64; 3]) -> u64 {
    let mut device = Device::new(1);
    let body = format!(
        "ld.global.u64 %d1, [%in]; ld.global.u64 %d2, [%in+8]; ld.global.u64 %d3, [%in+16];\n\
         {body}\n st.global.u64 [%out], %d4;"
    );
    let words: Vec<u32> = input
        .iter()
        .flat_map(|d| [*d as u32, (*d >> 32) as u32])
        .collect();
    let found = device.run(&body, (1, 1), &words, 2).unwrap();
    u64::from(found[0]) | u64::from(found[1]) << 32
}

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

fn f(value: f32) -> u32 {
    value.to_bits()
}

#[test]
fn floats() {
    let load = "mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3;";
    for (body, input, want) in [
        ("add.f32 %f4, %f1, %f2;", [f(1.5), f(2.25), 0], f(3.75)),
        ("add.rz.f32 %f4, %f1, %f2;", [f(1.0), f(1e-10), 0], f(1.0)),
        (
            "add.rp.f32 %f4, %f1, %f2;",
            [f(1.0), f(1e-10), 0],
            f(1.0_f32.next_up()),
        ),
        (
            "add.rm.ftz.sat.f32 %f4, %f1, %f2;",
            [f(1.0), f(1e-40), 0],
            f(1.0),
        ),
        ("add.sat.f32 %f4, %f1, %f2;", [f(1.5), f(2.25), 0], f(1.0)),
        ("mul.ftz.f32 %f4, %f1, %f2;", [f(1e-20), f(1e-20), 0], 0),
        (
            "mul.f32 %f4, %f1, %f2;",
            [f(1e-20), f(1e-20), 0],
            f(1e-20 * 1e-20),
        ),
        (
            "fma.rn.f32 %f4, %f1, %f2, %f3;",
            [f(1.000_000_1), f(1.000_000_1), f(-1.0)],
            f(1.000_000_1_f32.mul_add(1.000_000_1, -1.0)),
        ),
        (
            "div.rn.f32 %f4, %f1, %f2;",
            [f(1.0), f(3.0), 0],
            f(1.0 / 3.0),
        ),
        ("sqrt.rn.f32 %f4, %f1;", [f(2.0), 0, 0], f(2.0_f32.sqrt())),
        ("rcp.rn.f32 %f4, %f1;", [f(3.0), 0, 0], f(1.0 / 3.0)),
        ("neg.f32 %f4, %f1;", [f(3.0), 0, 0], f(-3.0)),
        ("abs.f32 %f4, %f1;", [f(-3.0), 0, 0], f(3.0)),
        ("min.f32 %f4, %f1, %f2;", [f(f32::NAN), f(-1.0), 0], f(-1.0)),
        ("max.f32 %f4, %f1, %f2;", [f(-0.0), f(0.0), 0], f(0.0)),
        ("copysign.f32 %f4, %f1, %f2;", [f(-1.0), f(5.0), 0], f(-5.0)),
        (
            "cvt.rzi.s32.f32 %r5, %f1; mov.b32 %f4, %r5;",
            [f(-2.7), 0, 0],
            2_u32.wrapping_neg(),
        ),
        (
            "cvt.rni.s32.f32 %r5, %f1; mov.b32 %f4, %r5;",
            [f(2.5), 0, 0],
            2,
        ),
        ("cvt.rmi.f32.f32 %f4, %f1;", [f(-2.5), 0, 0], f(-3.0)),
        (
            "cvt.rzi.u8.f32 %h1, %f1; cvt.u32.u16 %r5, %h1; mov.b32 %f4, %r5;",
            [f(300.0), 0, 0],
            255,
        ),
        ("cvt.sat.f32.f32 %f4, %f1;", [f(7.0), 0, 0], f(1.0)),
        (
            "mov.u32 %r5, 16777217; cvt.rn.f32.u32 %f4, %r5;",
            [0; 3],
            f(16_777_216.0),
        ),
        (
            "mov.u32 %r5, 16777217; cvt.rp.f32.u32 %f4, %r5;",
            [0; 3],
            f(16_777_218.0),
        ),
        ("selp.f32 %f4, 0f3F800000, 0f40000000, %p1;", [0; 3], f(2.0)),
        (
            "slct.f32.s32 %f4, %f1, %f2, -1;",
            [f(1.0), f(2.0), 0],
            f(2.0),
        ),
        ("set.lt.f32.f32 %f4, %f1, %f2;", [f(1.0), f(2.0), 0], f(1.0)),
        (
            "set.gt.u32.f32 %r5, %f2, %f1; mov.b32 %f4, %r5;",
            [f(1.0), f(2.0), 0],
            u32::MAX,
        ),
    ] {
        let body = format!("{load} {body} mov.b32 %r4, %f4;");
        assert_eq!(compute(&body, input), want, "{body}");
    }
    for (body, value, want, error) in [
        ("ex2.approx.ftz.f32", 3.5, 3.5_f32.exp2(), 1e-5),
        ("lg2.approx.f32", 10.0, 10.0_f32.log2(), 1e-5),
        ("sin.approx.f32", 0.7, 0.7_f32.sin(), 1e-5),
        ("cos.approx.f32", 0.7, 0.7_f32.cos(), 1e-5),
        ("tanh.approx.f32", 0.7, 0.7_f32.tanh(), 1e-3),
        ("rsqrt.approx.f32", 7.0, 7.0_f32.sqrt().recip(), 1e-5),
    ] {
        let body = format!("mov.b32 %f1, %r1; {body} %f2, %f1; mov.b32 %r4, %f2;");
        let found = f32::from_bits(compute(&body, [f(value), 0, 0]));
        assert!((found - want).abs() <= error, "{body}: {found} {want}");
    }
}

#[test]
fn doubles() {
    let d = f64::to_bits;
    let load = "mov.b64 %g1, %d1; mov.b64 %g2, %d2; mov.b64 %g3, %d3;";
    for (body, input, want) in [
        ("add.f64 %g4, %g1, %g2;", [d(0.1), d(0.2), 0], d(0.1 + 0.2)),
        (
            "fma.rn.f64 %g4, %g1, %g2, %g3;",
            [d(0.1), d(0.2), d(-0.02)],
            d(0.1_f64.mul_add(0.2, -0.02)),
        ),
        (
            "mul.rz.f64 %g4, %g1, %g2;",
            [d(0.1), d(0.1), 0],
            d((0.1_f64 * 0.1).next_down()),
        ),
        (
            "div.rn.f64 %g4, %g1, %g2;",
            [d(1.0), d(3.0), 0],
            d(1.0 / 3.0),
        ),
        ("sqrt.rn.f64 %g4, %g1;", [d(2.0), 0, 0], d(2.0_f64.sqrt())),
        ("max.f64 %g4, %g1, %g2;", [d(f64::NAN), d(-3.0), 0], d(-3.0)),
        (
            "cvt.rn.f32.f64 %f1, %g1; cvt.f64.f32 %g4, %f1;",
            [d(0.1), 0, 0],
            d(f64::from(0.1_f32)),
        ),
        (
            "cvt.rzi.s64.f64 %d5, %g1; mov.b64 %g4, %d5;",
            [d(-1e15), 0, 0],
            -1_000_000_000_000_000_i64 as u64,
        ),
        ("cvt.rn.f64.s64 %g4, %d1;", [u64::MAX, 0, 0], d(-1.0)),
    ] {
        let body = format!("{load} {body} mov.b64 %d4, %g4;");
        assert_eq!(compute64(&body, input), want, "{body}");
    }
}

#[test]
fn halves() {
    for (body, input, want) in [
        ("add.f16 %h3, %h1, %h2;", [0x3c00, 0x4000, 0], 0x4200),
        ("mul.f16 %h3, %h1, %h2;", [0x3c00, 0x4000, 0], 0x4000),
        (
            "fma.rn.f16 %h3, %h1, %h2, %h2;",
            [0x3c00, 0x4000, 0],
            0x4400,
        ),
        ("neg.f16 %h3, %h1;", [0x3c00, 0, 0], 0xbc00),
        ("add.bf16 %h3, %h1, %h2;", [0x3f80, 0x3f80, 0], 0x4000),
        ("add.sat.f16 %h3, %h1, %h2;", [0x3c00, 0x4000, 0], 0x3c00),
        (
            "cvt.f32.f16 %f1, %h1; add.f32 %f1, %f1, %f1; cvt.rn.f16.f32 %h3, %f1;",
            [0x3c00, 0, 0],
            0x4000,
        ),
    ] {
        let body =
            format!("cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; {body} cvt.u32.u16 %r4, %h3;");
        assert_eq!(compute(&body, input), want, "{body}");
    }
    let pairs = "add.f16x2 %r4, %r1, %r2;";
    assert_eq!(compute(pairs, [0x3c00_4000, 0x4000_4000, 0]), 0x4200_4400);
    let both = "mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.f16x2.f32 %r4, %f1, %f2;";
    assert_eq!(compute(both, [f(1.0), f(2.0), 0]), 0x3c00_4000);
    let ordered =
        "setp.lt.f16x2 %p1|%p2, %r1, %r2; selp.u32 %r4, 1, 0, %p1; @%p2 add.u32 %r4, %r4, 2;";
    assert_eq!(compute(ordered, [0x4000_3c00, 0x3c00_4000, 0]), 1);
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
fn comparisons_ordered_and_unordered() {
    let value = |name: &str| match name {
        "lt" => (1.0, 2.0),
        "gt" => (2.0, 1.0),
        "eq" => (2.0, 2.0),
        _ => (f32::NAN, 2.0),
    };
    for (operator, holds) in [
        ("eq", "eq"),
        ("ne", "lt gt"),
        ("lt", "lt"),
        ("le", "lt eq"),
        ("gt", "gt"),
        ("ge", "gt eq"),
        ("equ", "eq nan"),
        ("neu", "lt gt nan"),
        ("ltu", "lt nan"),
        ("leu", "lt eq nan"),
        ("gtu", "gt nan"),
        ("geu", "gt eq nan"),
        ("num", "lt gt eq"),
        ("nan", "nan"),
    ] {
        for case in ["lt", "gt", "eq", "nan"] {
            let (a, b) = value(case);
            let want = u32::from(holds.split(' ').any(|h| h == case));
            let single = format!(
                "mov.b32 %f1, %r1; mov.b32 %f2, %r2; setp.{operator}.f32 %p1, %f1, %f2; selp.u32 %r4, 1, 0, %p1;"
            );
            assert_eq!(compute(&single, [f(a), f(b), 0]), want, "{operator} {case}");
            let double = format!(
                "mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.f64.f32 %g1, %f1; cvt.f64.f32 %g2, %f2;\n\
                 setp.{operator}.f64 %p1|%p2, %g1, %g2; selp.u32 %r4, 1, 0, %p1; @%p2 add.u32 %r4, %r4, 2;"
            );
            assert_eq!(
                compute(&double, [f(a), f(b), 0]),
                2 - want,
                "{operator} {case} f64"
            );
        }
    }
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
            "setp.eq.u32 %p2, 1, 1; setp.eq.u32 %p3, 1, 2; or.pred %p1, %p3, %p2; not.pred %p1, %p1;",
            [0; 3],
            0,
        ),
        ("testp.notanumber.f32 %p1, 0f7FC00000;", [0; 3], 1),
    ] {
        let body = format!("{body} selp.u32 %r4, 1, 0, %p1;");
        assert_eq!(compute(&body, input), want, "{body}");
    }
}

#[test]
fn lanes_part_and_meet_again() {
    let body = "and.b32 %r1, %tid, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra even;\n\
        and.b32 %r2, %tid, 2; setp.eq.u32 %p2, %r2, 0; mov.u32 %r3, 100; @%p2 bra join; mov.u32 %r3, 200; bra join;\n\
        even: mov.u32 %r3, 300;\n\
        join: activemask.b32 %r4; popc.b32 %r4, %r4; add.u32 %r3, %r3, %r4; st.global.u32 [%o], %r3;";
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
        again: add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %tid; @%p1 bra again;\n\
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
    let body = "spin: atom.global.cas.b32 %r1, [lock], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra spin;\n\
        ld.global.u32 %r2, [counter]; add.u32 %r2, %r2, 1; st.global.u32 [counter], %r2;\n\
        membar.gl; atom.global.exch.b32 %r3, [lock], 0; st.global.u32 [%o], %r2;";
    let mut device = Device::new(2);
    let module = device.load(&kernel(before, body)).unwrap();
    let mut found = device.run_module(&module, (2, 40), &[], 80).unwrap();
    found.sort_unstable();
    assert_eq!(found, (1..=80).collect::<Vec<u32>>());
}

#[test]
fn barriers_order_shared_memory() {
    let body = ".shared .align 4 .b32 s[256]; mov.u64 %d1, s; mul.wide.u32 %d2, %tid, 4; add.u64 %d3, %d1, %d2;\n\
        st.shared.u32 [%d3], %tid; bar.sync 0; sub.u32 %r1, 255, %tid; mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2;\n\
        ld.shared.u32 %r2, [%d3]; st.global.u32 [%o], %r2;";
    assert_eq!(each(body, 256, &[]), (0..256).rev().collect::<Vec<u32>>());
}

#[test]
fn barriers_reduce_and_count() {
    let body = "setp.lt.u32 %p1, %tid, 50; bar.red.popc.u32 %r1, 0, %p1; bar.red.and.pred %p2, 1, %p1;\n\
        bar.red.or.pred %p3, 2, %p1; selp.u32 %r2, 1000, 0, %p2; selp.u32 %r3, 500, 0, %p3; add.u32 %r1, %r1, %r2;\n\
        add.u32 %r1, %r1, %r3; st.global.u32 [%o], %r1;";
    assert_eq!(each(body, 100, &[]), vec![550; 100]);
    // One warp produces, one consumes.
    let body = ".shared .b32 s; setp.lt.u32 %p1, %tid, 32; @%p1 bra producer;\n\
        bar.sync 3, 64; ld.shared.u32 %r1, [s]; st.global.u32 [%o], %r1; ret;\n\
        producer: st.shared.u32 [s], 77; bar.arrive 3, 64; st.global.u32 [%o], 5;";
    let found = each(body, 64, &[]);
    assert_eq!((found[0], found[31], found[32], found[63]), (5, 5, 77, 77));
    // Threads that have ended are not waited for; lanes of one warp may arrive from different places.
    let body = "setp.ge.u32 %p1, %tid, 48; @%p1 exit; setp.lt.u32 %p2, %tid, 10; @%p2 bra a; bar.sync 0; bra end;\n\
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
    let body = "setp.gt.u32 %p1, %tid, 27; vote.sync.ballot.b32 %r1, %p1, -1; vote.sync.any.pred %p2, %p1, -1;\n\
        vote.sync.all.pred %p3, !%p1, -1; selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 1, 0, %p3; add.u32 %r1, %r1, %r2;\n\
        add.u32 %r1, %r1, %r3; st.global.u32 [%o], %r1;";
    assert_eq!(each(body, 32, &[]), vec![0xf000_0001; 32]);
    let body = "and.b32 %r1, %tid, 3; match.any.sync.b32 %r2, %r1, -1; st.global.u32 [%o], %r2;";
    assert_eq!(
        each(body, 32, &[])[..4],
        [0x1111_1111, 0x2222_2222, 0x4444_4444, 0x8888_8888]
    );
    let body = "redux.sync.add.u32 %r1, %tid, -1; redux.sync.max.s32 %r2, %tid, -1; add.u32 %r1, %r1, %r2;\n\
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
    let body = "red.global.add.f32 [%out], 0f3F000000; add.u64 %d1, %out, 8; mov.f64 %g1, 0d3FE0000000000000;\n\
        red.global.add.f64 [%d1], %g1; atom.global.add.u64 %d2, [%out+16], 3; red.global.add.noftz.f16x2 [%out+24], 0x3c003c00;\n\
        cvt.u16.u32 %h1, 0; cvt.u16.u32 %h2, 7; atom.global.cas.b16 %h3, [%out+30], %h1, %h2;";
    let mut device = Device::new(2);
    let found = device.run(body, (16, 64), &[], 8).unwrap();
    assert_eq!(f32::from_bits(found[0]), 512.0);
    assert_eq!(
        f64::from_bits(u64::from(found[3]) << 32 | u64::from(found[2])),
        512.0
    );
    assert_eq!((found[4], found[6], found[7]), (3072, 0x6400_6400, 7 << 16));
    let body = ".shared .b32 s; st.shared.u32 [s], 0; bar.sync 0; atom.shared.add.u32 %r1, [s], 2; bar.sync 0;\n\
        ld.shared.u32 %r2, [s]; st.global.u32 [%o], %r2;";
    assert_eq!(each(body, 96, &[]), vec![192; 96]);
}

#[test]
fn addresses_of_every_space_are_generic_too() {
    let before = ".const .align 4 .u32 table[4] = {10, 20, 30, 40}; .global .align 8 .u64 pointer = generic(table);";
    let body = ".shared .b32 s[64]; .local .b32 l[4];\n\
        mov.u64 %d1, s; cvta.shared.u64 %d2, %d1; mad.wide.u32 %d2, %tid, 4, %d2; st.u32 [%d2], %tid;\n\
        mov.u64 %d3, l; cvta.local.u64 %d4, %d3; add.u32 %r1, %tid, 100; st.u32 [%d4+8], %r1; ld.local.u32 %r2, [l+8];\n\
        cvta.to.shared.u64 %d5, %d2; ld.shared.u32 %r3, [%d5]; ld.global.u64 %d6, [pointer]; ld.u32 %r4, [%d6+8];\n\
        ld.const.u32 %r5, [table+4]; mov.u64 %d7, pin; cvta.param.u64 %d8, %d7; ld.u64 %d9, [%d8]; sub.u64 %d9, %d9, %in;\n\
        cvt.u32.u64 %r6, %d9; isspacep.shared %p1, %d2; isspacep.local %p2, %d4; isspacep.global %p3, %out; isspacep.const %p4, %d6;\n\
        isspacep.global %p5, %d4; and.pred %p1, %p1, %p2; and.pred %p1, %p1, %p3; and.pred %p1, %p1, %p4; not.pred %p5, %p5;\n\
        and.pred %p1, %p1, %p5; selp.u32 %r7, 1000, 0, %p1; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; add.u32 %r2, %r2, %r5;\n\
        add.u32 %r2, %r2, %r6; add.u32 %r2, %r2, %r7; st.global.u32 [%o], %r2;";
    let mut device = Device::new(1);
    let module = device.load(&kernel(before, body)).unwrap();
    let found = device.run_module(&module, (1, 64), &[], 64).unwrap();
    assert_eq!(
        found,
        (0..64)
            .map(|t| t + 100 + t + 30 + 20 + 1000)
            .collect::<Vec<u32>>()
    );
}

#[test]
fn vectors_and_narrow_types_move_through_memory() {
    let body = "mul.wide.u32 %d1, %tid, 16; add.u64 %d2, %in, %d1; ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%d2];\n\
        add.u64 %d3, %out, %d1; st.global.v4.u32 [%d3], {%r4,%r3,%r2,%r1};";
    let input: Vec<u32> = (0..64).collect();
    let mut device = Device::new(1);
    let found = device.run(body, (1, 16), &input, 64).unwrap();
    assert_eq!(found[..8], [3, 2, 1, 0, 7, 6, 5, 4]);
    let body =
        "ld.global.v2.u64 {%d1, %in}, [%in]; add.u64 %d1, %d1, %in; st.global.u64 [%out], %d1;";
    assert_eq!(device.run(body, (1, 1), &[5, 0, 7, 0], 2).unwrap(), [12, 0]);
    let body = "ld.global.s8 %r1, [%in+1]; ld.global.u8 %r2, [%in+1]; ld.global.s16 %d1, [%in]; cvt.u32.u64 %r3, %d1;\n\
        st.global.u32 [%out], %r1; st.global.u32 [%out+4], %r2; st.global.u32 [%out+8], %r3; st.global.u8 [%out+13], %r2;\n\
        st.global.u16 [%out+18], %d1;";
    let found = device.run(body, (1, 1), &[0xff90], 5).unwrap();
    assert_eq!(found, [u32::MAX, 0xff, 0xffff_ff90, 0xff00, 0xff90_0000]);
}

#[test]
fn functions_are_called_from_different_places_and_recursively() {
    let before = ".func (.param .b32 result) scale(.param .b32 a, .param .align 8 .b8 pair[16])\n\
        { .reg .b32 %r<5>; .reg .b64 %d<2>; ld.param.u32 %r1, [a]; ld.param.u64 %d1, [pair+8]; cvt.u32.u64 %r2, %d1;\n\
          mul.lo.u32 %r3, %r1, %r2; st.param.b32 [result], %r3; ret; }\n\
        .func (.reg .b32 sum) triangle(.reg .b32 n)\n\
        { .reg .pred %p; .reg .b32 %r<3>; mov.u32 sum, 0; setp.eq.u32 %p, n, 0; @%p ret;\n\
          sub.u32 %r1, n, 1; call (%r2), triangle, (%r1); add.u32 sum, %r2, n; ret; }";
    let call = "{ .param .b32 a; .param .align 8 .b8 p[16]; .param .b32 back; st.param.b32 [a], %tid; st.param.b64 [p+8], %d1;\n\
        call.uni (back), scale, (a, p); ld.param.b32 %r1, [back]; }";
    let body = format!(
        "and.b32 %r2, %tid, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra even; mov.u64 %d1, 3; {call} bra join;\n\
         even: mov.u64 %d1, 5; {call} join: and.b32 %r3, %tid, 15; call (%r4), triangle, (%r3); mad.lo.u32 %r1, %r4, 1000, %r1;\n\
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
    let body = "mov.u32 %r1, %laneid; mov.u32 %r2, %warpid; mad.lo.u32 %r3, %r2, 32, %r1; mov.u32 %r4, %nwarpid;\n\
        mul.lo.u32 %r4, %r4, 1000; add.u32 %r3, %r3, %r4; mov.u32 %r5, %lanemask_lt; popc.b32 %r5, %r5; sub.u32 %r3, %r3, %r5;\n\
        mov.u64 %d1, %clock64; mov.u64 %d2, %clock64; setp.ge.u64 %p1, %d1, %d2; @%p1 mov.u32 %r3, 0; mov.u64 %d3, %globaltimer;\n\
        st.global.u32 [%o], %r3;";
    let found = each(body, 96, &[]);
    assert_eq!((found[0], found[33], found[95]), (3000, 3032, 3064));
}

#[test]
fn shared_memory_can_be_dynamic() {
    let before = ".extern .shared .align 16 .b8 dynamic[];";
    let body = ".shared .align 4 .b8 fixed[20]; mov.u64 %d1, dynamic; mad.wide.u32 %d1, %tid, 4, %d1; st.shared.u32 [%d1], %tid;\n\
        mov.u32 %r9, fixed; bar.sync 0; mov.u64 %d2, dynamic; ld.shared.u32 %r1, [%d2+124]; mov.u32 %r2, %dynamic_smem_size;\n\
        add.u32 %r1, %r1, %r2; cvt.u32.u64 %r3, %d2; add.u32 %r1, %r1, %r3; st.global.u32 [%o], %r1;";
    let mut device = Device::new(1);
    let module = device.load(&kernel(before, body)).unwrap();
    let out = device.buffer(4096, Access::ReadWrite);
    let given = [out.va.to_le_bytes(), out.va.to_le_bytes()].concat();
    device
        .launch(&module, "k", ([1, 1, 1], [32, 1, 1], 256), &given)
        .unwrap();
    assert_eq!(out.words(1), [31 + 256 + 32]);
}

#[test]
fn asynchronous_copies_copy() {
    let body = ".shared .align 16 .b8 s[512]; mov.u64 %d1, s; mul.wide.u32 %d2, %tid, 16; add.u64 %d3, %d1, %d2; add.u64 %d4, %in, %d2;\n\
        cvt.u32.u64 %r1, %d3; and.b32 %r2, %tid, 15; cp.async.cg.shared.global [%r1], [%d4], 16, %r2; cp.async.commit_group;\n\
        cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r3, [%d3+4]; st.global.u32 [%o], %r3;";
    let input: Vec<u32> = (0..128).map(|i| i * 0x0101_0101).collect();
    let found = each(body, 32, &input);
    for (t, word) in found.iter().enumerate() {
        let given = (t % 16).saturating_sub(4).min(4) as u32;
        let mask = if given == 4 {
            u32::MAX
        } else {
            (1 << (8 * given)) - 1
        };
        assert_eq!(*word, input[4 * t + 1] & mask, "{t}");
    }
}
