//! `cvt`: between integers and floats of all sizes (PTX ISA, "cvt").

use super::Refusal;
use super::arithmetic::{Family, family};
use super::form::Form;
use super::frame::{Class, scalar_bytes};
use super::function::Lowering;
use crate::arith::convert::{self as arith, Integer};
use crate::arith::float16::Half;
use crate::arith::format::{BF16, F16, F32, F64};
use crate::arith::{Rounding, float32};
use crate::exec::{binary, ternary_with, unary, unary_with};
use crate::isa::Isa;
use crate::program::{Action, Exec, Op, Slot};
use crate::ptx::ast::{Operand, ScalarType};
use ScalarType as T;

/// `cvt`
pub(super) fn convert(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result<(), Refusal> {
    if form.flag("pack") {
        return pack(cx, form);
    }
    let rounding_to_away = form.flag("rna");
    let rounding = form.rounding();
    let modifiers = Modifiers {
        rounding,
        away: rounding_to_away,
        ftz: form.flag("ftz"),
        sat: form.flag("sat"),
        finite: form.flag("satfinite"),
        relu: form.flag("relu"),
    };
    if form.flag("tf32") {
        return to_tf32(cx, form, &modifiers);
    }
    let (to, from) = (form.scalar()?, form.scalar()?);
    if matches!(to, T::F16x2 | T::BF16x2) {
        return pair(cx, form, to, &modifiers);
    }
    let steps = steps(cx.kernel.isa, to, from, &modifiers).ok_or_else(|| form.unsupported())?;
    let [d, a] = form.operands()?;
    let source = cx.source_relaxed(a, from)?;
    chain(cx, d, to, source, &steps)
}

/// Modifiers of a conversion.
struct Modifiers {
    rounding: Option<Rounding>,
    away: bool,
    ftz: bool,
    sat: bool,
    finite: bool,
    relu: bool,
}

/// One lane function of a conversion, with its immediate and the class of its result.
struct StepOf {
    execute: Exec,
    imm: u64,
    class: Class,
}

fn step(execute: Exec, class: Class) -> StepOf {
    StepOf {
        execute,
        imm: 0,
        class,
    }
}

/// Emits steps one after the other. A destination wider than its type gets the value extended.
fn chain(
    cx: &mut Lowering<'_, '_>,
    destination: &Operand,
    to: ScalarType,
    mut source: Slot,
    steps: &[StepOf],
) -> Result<(), Refusal> {
    let register = cx.any_destination(destination)?;
    let class = Class::of(to);
    let wide = register.is_some_and(|r| r.class == Class::Double && class == Class::Word);
    for (index, step) in steps.iter().enumerate() {
        let last = index + 1 == steps.len();
        let dst = if last && !wide {
            cx.destination(destination, to)?
        } else {
            cx.scratch(step.class)?
        };
        let op = Op {
            dst,
            a: source,
            imm: step.imm,
            ..cx.op(Action::Lanes(step.execute))
        };
        cx.push(op)?;
        source = dst;
    }
    match register {
        Some(register) if wide => {
            let signed = matches!(to, T::S8 | T::S16 | T::S32);
            let extend = if signed {
                unary(cx.kernel.isa, |a: i32| i64::from(a))
            } else {
                unary(cx.kernel.isa, |a: u32| u64::from(a))
            };
            cx.compute(extend, register.slot, &[source])
        }
        _ => Ok(()),
    }
}

fn steps(isa: Isa, to: ScalarType, from: ScalarType, m: &Modifiers) -> Option<Vec<StepOf>> {
    if m.away || m.relu && family(to) != Some(Family::Half) || m.finite {
        return None;
    }
    let one = |s: StepOf| Some(vec![s]);
    match (family(from)?, family(to)?) {
        (Family::Integer, Family::Integer) if m.sat => one(StepOf {
            execute: saturating(from, to)?,
            imm: encode(integer(from)?, integer(to)?, Rounding::Zero),
            class: Class::of(to),
        }),
        (Family::Integer, Family::Integer) => between_integers(isa, from, to),
        (Family::Integer, _) => {
            let mut steps = vec![from_integer(isa, from, to, m.rounding?)?];
            finish_float(isa, to, m, &mut steps)?;
            Some(steps)
        }
        (_, Family::Integer) => to_integer(isa, to, from, m),
        _ => between_floats(isa, to, from, m),
    }
}

/// The integer that a type is.
fn integer(scalar: ScalarType) -> Option<Integer> {
    let signed = matches!(scalar, T::S8 | T::S16 | T::S32 | T::S64);
    (family(scalar)? == Family::Integer).then(|| Integer {
        bits: 8 * scalar_bytes(scalar),
        signed,
    })
}

/// Two integer types and a rounding mode in an immediate.
fn encode(from: Integer, to: Integer, rounding: Rounding) -> u64 {
    let one = |i: Integer| u64::from(i.bits) | u64::from(i.signed) << 7;
    one(from) | one(to) << 8 | (rounding as u64) << 16
}

fn decode(imm: u64) -> (Integer, Integer, Rounding) {
    let one = |bits: u64| Integer {
        bits: (bits & 0x7f) as u32,
        signed: bits & 0x80 != 0,
    };
    let rounding = Rounding::ALL[(imm >> 16) as usize & 3];
    (one(imm), one(imm >> 8), rounding)
}

/// Extends what is read from a short type, changes the class, and cuts to a short type: as much of it as needed.
fn between_integers(isa: Isa, from: ScalarType, to: ScalarType) -> Option<Vec<StepOf>> {
    let (source, target) = (integer(from)?, integer(to)?);
    let mut steps = Vec::new();
    if source.bits < 32 && target.bits > source.bits {
        steps.push(step(shortened(isa, from)?, Class::Word));
    }
    match (Class::of(from), Class::of(to)) {
        (Class::Word, Class::Double) if source.signed => {
            steps.push(step(unary(isa, |a: i32| i64::from(a)), Class::Double));
        }
        (Class::Word, Class::Double) => {
            steps.push(step(unary(isa, |a: u32| u64::from(a)), Class::Double));
        }
        (Class::Double, Class::Word) => {
            steps.push(step(unary(isa, |a: u64| a as u32), Class::Word));
        }
        _ => {}
    }
    if target.bits < 32 {
        steps.push(step(shortened(isa, to)?, Class::Word));
    } else if steps.is_empty() {
        let copy = match Class::of(to) {
            Class::Double => unary(isa, |a: u64| a),
            _ => unary(isa, |a: u32| a),
        };
        steps.push(step(copy, Class::of(to)));
    }
    Some(steps)
}

/// The low bits of a word as a short type, extended to a word again.
fn shortened(isa: Isa, scalar: ScalarType) -> Option<Exec> {
    Some(match scalar {
        T::U8 => unary(isa, |a: u8| a),
        T::S8 => unary(isa, |a: i8| a),
        T::U16 => unary(isa, |a: u16| a),
        T::S16 => unary(isa, |a: i16| a),
        _ => return None,
    })
}

fn saturating(from: ScalarType, to: ScalarType) -> Option<Exec> {
    Some(match (Class::of(from), Class::of(to)) {
        (Class::Word, Class::Word) => {
            unary_with(Isa::Baseline, |a: u32, imm| saturate(a.into(), imm) as u32)
        }
        (Class::Word, Class::Double) => {
            unary_with(Isa::Baseline, |a: u32, imm| saturate(a.into(), imm))
        }
        (Class::Double, Class::Word) => {
            unary_with(Isa::Baseline, |a: u64, imm| saturate(a, imm) as u32)
        }
        (Class::Double, Class::Double) => unary_with(Isa::Baseline, saturate),
        _ => return None,
    })
}

fn saturate(register: u64, imm: u64) -> u64 {
    let (from, to, _) = decode(imm);
    arith::integer_to_integer_sat(register, from, to)
}

fn from_integer(isa: Isa, from: ScalarType, to: ScalarType, rounding: Rounding) -> Option<StepOf> {
    if rounding == Rounding::Nearest {
        let fast = match (from, to) {
            (T::U32, T::F32) => Some(unary(isa, |a: u32| a as f32)),
            (T::S32, T::F32) => Some(unary(isa, |a: i32| a as f32)),
            (T::U64, T::F32) => Some(unary(isa, |a: u64| a as f32)),
            (T::S64, T::F32) => Some(unary(isa, |a: i64| a as f32)),
            (T::U32, T::F64) => Some(unary(isa, |a: u32| a as f64)),
            (T::S32, T::F64) => Some(unary(isa, |a: i32| a as f64)),
            (T::U64, T::F64) => Some(unary(isa, |a: u64| a as f64)),
            (T::S64, T::F64) => Some(unary(isa, |a: i64| a as f64)),
            _ => None,
        };
        if let Some(execute) = fast {
            return Some(step(execute, Class::of(to)));
        }
    }
    macro_rules! rounded {
        ($format:expr, $bits:ty) => {
            match Class::of(from) {
                Class::Word => unary_with(Isa::Baseline, |a: u32, imm| {
                    let (from, _, rounding) = decode(imm);
                    arith::integer_to_float(a.into(), from, $format, rounding) as $bits
                }),
                _ => unary_with(Isa::Baseline, |a: u64, imm| {
                    let (from, _, rounding) = decode(imm);
                    arith::integer_to_float(a, from, $format, rounding) as $bits
                }),
            }
        };
    }
    let execute = match to {
        T::F16 => rounded!(F16, u16),
        T::BF16 => rounded!(BF16, u16),
        T::F32 => rounded!(F32, u32),
        _ => rounded!(F64, u64),
    };
    let from = integer(from)?;
    Some(StepOf {
        execute,
        imm: encode(from, from, rounding),
        class: Class::of(to),
    })
}

fn to_integer(isa: Isa, to: ScalarType, from: ScalarType, m: &Modifiers) -> Option<Vec<StepOf>> {
    let rounding = m.rounding?;
    let mut steps = Vec::new();
    if m.ftz && from == T::F32 {
        steps.push(step(unary(isa, float32::flush), Class::Word));
    }
    let fast = match (from, to, rounding) {
        (T::F32, T::S32, Rounding::Zero) => Some(unary(isa, |a: f32| a as i32)),
        (T::F32, T::U32, Rounding::Zero) => Some(unary(isa, |a: f32| a as u32)),
        (T::F32, T::S32, Rounding::Nearest) => {
            Some(unary(isa, |a: f32| a.round_ties_even() as i32))
        }
        (T::F32, T::S32, Rounding::Down) => Some(unary(isa, |a: f32| a.floor() as i32)),
        _ => None,
    };
    if let Some(execute) = fast {
        steps.push(step(execute, Class::Word));
        return Some(steps);
    }
    let execute = match (from, Class::of(to)) {
        (T::F16, Class::Word) => unary_with(Isa::Baseline, |a: u16, imm| {
            whole(Half::F16.widen(a).into(), imm, false) as u32
        }),
        (T::F16, _) => unary_with(Isa::Baseline, |a: u16, imm| {
            whole(Half::F16.widen(a).into(), imm, false)
        }),
        (T::BF16, Class::Word) => unary_with(Isa::Baseline, |a: u16, imm| {
            whole(Half::BF16.widen(a).into(), imm, false) as u32
        }),
        (T::BF16, _) => unary_with(Isa::Baseline, |a: u16, imm| {
            whole(Half::BF16.widen(a).into(), imm, false)
        }),
        (T::F32, Class::Word) => unary_with(Isa::Baseline, |a: f32, imm| {
            whole(a.into(), imm, false) as u32
        }),
        (T::F32, _) => unary_with(Isa::Baseline, |a: f32, imm| whole(a.into(), imm, false)),
        (_, Class::Word) => unary_with(Isa::Baseline, |a: f64, imm| whole(a, imm, true) as u32),
        _ => unary_with(Isa::Baseline, |a: f64, imm| whole(a, imm, true)),
    };
    let target = integer(to)?;
    steps.push(StepOf {
        execute,
        imm: encode(target, target, rounding),
        class: Class::of(to),
    });
    Some(steps)
}

fn whole(value: f64, imm: u64, from_double: bool) -> u64 {
    let (_, to, rounding) = decode(imm);
    arith::float_to_integer(value, rounding, to, from_double)
}

fn between_floats(
    isa: Isa,
    to: ScalarType,
    from: ScalarType,
    m: &Modifiers,
) -> Option<Vec<StepOf>> {
    let mut steps = Vec::new();
    if m.ftz && from == T::F32 {
        steps.push(step(unary(isa, float32::flush), Class::Word));
    }
    let rounding = m.rounding.unwrap_or(Rounding::Nearest);
    if from == to {
        steps.push(integral(isa, from, m.rounding)?);
    } else {
        let execute = match (from, to) {
            (T::F16, T::F32) => unary(isa, |a: u16| Half::F16.widen(a)),
            (T::BF16, T::F32) => unary(isa, |a: u16| Half::BF16.widen(a)),
            (T::F16, T::F64) => unary(isa, |a: u16| f64::from(Half::F16.widen(a))),
            (T::BF16, T::F64) => unary(isa, |a: u16| f64::from(Half::BF16.widen(a))),
            (T::F32, T::F64) => unary(isa, |a: f32| f64::from(a)),
            (T::F64, T::F32) if rounding == Rounding::Nearest => unary(isa, |a: f64| a as f32),
            (T::F64, T::F32) => unary_with(Isa::Baseline, |a: f64, imm| {
                arith::f64_to_f32(a, decode(imm).2)
            }),
            (_, T::F16 | T::BF16) => return to_half(isa, to, from, rounding, m, steps),
            _ => return None,
        };
        steps.push(StepOf {
            execute,
            imm: (rounding as u64) << 16,
            class: Class::of(to),
        });
    }
    finish_float(isa, to, m, &mut steps)?;
    Some(steps)
}

fn to_half(
    isa: Isa,
    to: ScalarType,
    from: ScalarType,
    rounding: Rounding,
    m: &Modifiers,
    mut steps: Vec<StepOf>,
) -> Option<Vec<StepOf>> {
    let nearest = rounding == Rounding::Nearest;
    let execute = match (from, to) {
        (T::F32, T::F16) if nearest => unary(isa, |a: f32| Half::F16.nearest(a)),
        (T::F32, T::BF16) if nearest => unary(isa, |a: f32| Half::BF16.nearest(a)),
        (T::F32, T::F16) => unary_with(Isa::Baseline, |a: f32, imm| {
            Half::F16.round(a.into(), decode(imm).2)
        }),
        (T::F32, _) => unary_with(Isa::Baseline, |a: f32, imm| {
            Half::BF16.round(a.into(), decode(imm).2)
        }),
        (T::F64, T::F16) => unary_with(Isa::Baseline, |a: f64, imm| {
            Half::F16.round(a, decode(imm).2)
        }),
        (T::F64, _) => unary_with(Isa::Baseline, |a: f64, imm| {
            Half::BF16.round(a, decode(imm).2)
        }),
        (T::F16, _) => unary(isa, |a: u16| Half::BF16.nearest(Half::F16.widen(a))),
        _ => unary(isa, |a: u16| Half::F16.nearest(Half::BF16.widen(a))),
    };
    steps.push(StepOf {
        execute,
        imm: (rounding as u64) << 16,
        class: Class::Word,
    });
    finish_float(isa, to, m, &mut steps)?;
    Some(steps)
}

/// A float of the same type: without its fraction if there is a rounding mode.
fn integral(isa: Isa, scalar: ScalarType, rounding: Option<Rounding>) -> Option<StepOf> {
    let class = Class::of(scalar);
    let Some(rounding) = rounding else {
        return Some(match class {
            Class::Double => step(unary(isa, |a: u64| a), class),
            _ => step(unary(isa, |a: u32| a), class),
        });
    };
    let execute = match scalar {
        T::F32 => unary_with(Isa::Baseline, |a: f32, imm| {
            arith::integral_f32(a, decode(imm).2)
        }),
        T::F64 => unary_with(Isa::Baseline, |a: f64, imm| {
            arith::integral_f64(a, decode(imm).2)
        }),
        T::F16 => unary_with(Isa::Baseline, |a: u16, imm| {
            let whole = arith::integral_f32(Half::F16.widen(a), decode(imm).2);
            Half::F16.nearest(whole)
        }),
        _ => unary_with(Isa::Baseline, |a: u16, imm| {
            let whole = arith::integral_f32(Half::BF16.widen(a), decode(imm).2);
            Half::BF16.nearest(whole)
        }),
    };
    Some(StepOf {
        execute,
        imm: (rounding as u64) << 16,
        class,
    })
}

/// What `.ftz`, `.sat` and `.relu` do to a float result.
fn finish_float(isa: Isa, to: ScalarType, m: &Modifiers, steps: &mut Vec<StepOf>) -> Option<()> {
    let class = Class::of(to);
    if m.ftz && to == T::F32 {
        steps.push(step(unary(isa, float32::flush), class));
    }
    if m.sat {
        let execute = match to {
            T::F32 => unary(isa, float32::saturate),
            T::F16 => unary(isa, |a: u16| Half::F16.saturate(a)),
            T::BF16 => unary(isa, |a: u16| Half::BF16.saturate(a)),
            // NaN becomes zero, as in the shorter types.
            _ => unary(isa, |a: f64| if a > 0.0 { a.min(1.0) } else { 0.0 }),
        };
        steps.push(step(execute, class));
    }
    if m.relu {
        let execute = match to {
            T::F16 => unary(isa, |a: u16| Half::F16.rectify(a)),
            T::BF16 => unary(isa, |a: u16| Half::BF16.rectify(a)),
            _ => return None,
        };
        steps.push(step(execute, class));
    }
    Some(())
}

/// `cvt.rn.f16x2.f32 d, a, b`: `a` becomes the upper half.
fn pair(
    cx: &mut Lowering<'_, '_>,
    form: Form<'_>,
    to: ScalarType,
    m: &Modifiers,
) -> Result<(), Refusal> {
    let isa = cx.kernel.isa;
    let half = if to == T::F16x2 { T::F16 } else { T::BF16 };
    let [d, a, b] = form.operands()?;
    let mut halves = [Slot::default(); 2];
    for (slot, operand) in halves.iter_mut().zip([a, b]) {
        let steps = steps(isa, half, T::F32, m).ok_or_else(|| form.unsupported())?;
        let mut value = cx.source(operand, T::F32)?;
        for step in &steps {
            let dst = cx.scratch(Class::Word)?;
            let op = Op {
                dst,
                a: value,
                imm: step.imm,
                ..cx.op(Action::Lanes(step.execute))
            };
            cx.push(op)?;
            value = dst;
        }
        *slot = value;
    }
    let dst = cx.destination(d, to)?;
    let join = binary(isa, |upper: u32, lower: u32| upper << 16 | (lower & 0xffff));
    cx.compute(join, dst, &halves)
}

/// `cvt.rna.tf32.f32` and its kin
fn to_tf32(cx: &mut Lowering<'_, '_>, mut form: Form<'_>, m: &Modifiers) -> Result<(), Refusal> {
    let isa = cx.kernel.isa;
    let from = form.scalar()?;
    if from != T::F32 || m.relu || m.sat || m.finite {
        return Err(form.unsupported());
    }
    let execute = if m.away {
        unary(isa, arith::tf32_nearest_away)
    } else {
        unary_with(Isa::Baseline, |a: f32, imm| arith::tf32(a, decode(imm).2))
    };
    let rounding = m.rounding.unwrap_or(Rounding::Nearest);
    cx.simple(&form, [T::B32, T::F32], execute, (rounding as u64) << 16)
}

/// `cvt.pack.sat`
fn pack(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result<(), Refusal> {
    let isa = cx.kernel.isa;
    form.flag("sat");
    let narrow = match form.one_of(&["u2", "s2", "u4", "s4"]) {
        Some(name) => Integer {
            bits: if name.ends_with('2') { 2 } else { 4 },
            signed: name.starts_with('s'),
        },
        None => {
            let scalar = form.scalar()?;
            integer(scalar).ok_or_else(|| form.unsupported())?
        }
    };
    let _from = form.scalar()?;
    form.scalar_if_any();
    let execute = ternary_with(isa, |a: u32, b: u32, c: u32, imm| {
        arith::pack(a, b, c, decode(imm).0)
    });
    let imm = encode(narrow, narrow, Rounding::Zero);
    if form.instruction.operands.len() == 4 {
        return cx.simple(&form, [T::U32; 4], execute, imm);
    }
    let [d, a, b] = form.operands()?;
    let (a, b) = (cx.source(a, T::U32)?, cx.source(b, T::U32)?);
    let c = cx.constant(0, Class::Word)?;
    let dst = cx.destination(d, T::U32)?;
    let op = Op {
        dst,
        a,
        b,
        c,
        imm,
        ..cx.op(Action::Lanes(execute))
    };
    cx.push(op)
}
