//! Floats of all widths.

use crate::{compute, compute64, f};

/// Three floats in (`%f1`, `%f2`, `%f3`), one (`%f4`) out.
fn compute_float(body: &str, input: [u32; 3]) -> u32 {
    let load = "mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3;";
    compute(&format!("{load} {body} mov.b32 %r4, %f4;"), input)
}

#[test]
fn floats() {
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
        assert_eq!(compute_float(body, input), want, "{body}");
    }
}

#[test]
fn conversions_to_and_from_floats() {
    for (body, input, want) in [
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
    ] {
        assert_eq!(compute_float(body, input), want, "{body}");
    }
}

#[test]
fn approximations() {
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
fn pairs_of_8_bit_floats() {
    let (nan, infinity) = (f(f32::NAN), f(f32::INFINITY));
    for (form, input, want) in [
        ("cvt.rn.satfinite.e4m3x2.f32", [f(1.0), f(-2.0)], 0x38c0),
        ("cvt.rn.satfinite.e4m3x2.f32", [infinity, nan], 0x7e7f),
        ("cvt.rn.satfinite.relu.e4m3x2.f32", [f(-1.0), nan], 0x007f),
        (
            "cvt.rn.satfinite.relu.e4m3x2.f32",
            [f(500.0), f(-0.0)],
            0x7e00,
        ),
        ("cvt.rn.satfinite.e5m2x2.f32", [f(1.0), f(-2.0)], 0x3cc0),
        ("cvt.rn.satfinite.e5m2x2.f32", [infinity, nan], 0x7b7f),
        (
            "cvt.rn.satfinite.relu.e5m2x2.f32",
            [f(1e6), f(-2.0)],
            0x7b00,
        ),
    ] {
        let load = "mov.b32 %f1, %r1; mov.b32 %f2, %r2;";
        let body = format!("{load} {form} %h1, %f1, %f2; cvt.u32.u16 %r4, %h1;");
        assert_eq!(compute(&body, [input[0], input[1], 0]), want, "{form}");
    }
    for (form, input, want) in [
        ("cvt.rn.satfinite.e4m3x2.f16x2", 0x3c00_c000, 0x38c0),
        ("cvt.rn.satfinite.e4m3x2.f16x2", 0xfc00_fe00, 0xfe7f),
        ("cvt.rn.satfinite.relu.e4m3x2.f16x2", 0x3c00_c000, 0x3800),
        ("cvt.rn.satfinite.e5m2x2.f16x2", 0x3c00_c000, 0x3cc0),
        ("cvt.rn.satfinite.e5m2x2.f16x2", 0xfc00_fe00, 0xfb7f),
        ("cvt.rn.satfinite.relu.e5m2x2.f16x2", 0xc000_3c00, 0x003c),
    ] {
        let body = format!("{form} %h1, %r1; cvt.u32.u16 %r4, %h1;");
        assert_eq!(compute(&body, [input, 0, 0]), want, "{form}");
    }
    for (form, input, want) in [
        ("cvt.rn.f16x2.e4m3x2", 0x38c0, 0x3c00_c000),
        ("cvt.rn.f16x2.e4m3x2", 0xff01, 0x7fff_1800),
        ("cvt.rn.relu.f16x2.e4m3x2", 0xc0ff, 0x0000_7fff),
        ("cvt.rn.f16x2.e5m2x2", 0x3cc0, 0x3c00_c000),
        ("cvt.rn.f16x2.e5m2x2", 0xfcfd, 0xfc00_7fff),
        ("cvt.rn.relu.f16x2.e5m2x2", 0x3cfc, 0x3c00_0000),
    ] {
        let body = format!("cvt.u16.u32 %h1, %r1; {form} %r4, %h1;");
        assert_eq!(compute(&body, [input, 0, 0]), want, "{form}");
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
                "mov.b32 %f1, %r1; mov.b32 %f2, %r2; setp.{operator}.f32 %p1, %f1, %f2; \
                 selp.u32 %r4, 1, 0, %p1;"
            );
            assert_eq!(compute(&single, [f(a), f(b), 0]), want, "{operator} {case}");
            let double = format!(
                "mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.f64.f32 %g1, %f1; cvt.f64.f32 %g2, %f2;\n\
                 setp.{operator}.f64 %p1|%p2, %g1, %g2; selp.u32 %r4, 1, 0, %p1; \
                 @%p2 add.u32 %r4, %r4, 2;"
            );
            assert_eq!(
                compute(&double, [f(a), f(b), 0]),
                2 - want,
                "{operator} {case} f64"
            );
        }
    }
}
