//! `cvt`: between integers and floats of all sizes (PTX ISA, "cvt").

mod float;
mod float8;
mod integer;
mod step;

use float::{between_floats, finish_float, from_integer, to_integer};
use float8::{Type, from_pair, to_pair};
use integer::{between_integers, saturating};
use step::{ConversionStep, Modifiers, decode, encode, encode_rounding, integer, step_with};

use super::family::{Family, family};
use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::arith::Rounding;
use crate::arith::convert::{self as arith, Integer};
use crate::exec::{binary, ternary_with, unary, unary_with};
use crate::isa::Isa;
use crate::meaning::Meaning;
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;
use ScalarType as T;

/// `cvt`
pub(super) fn convert(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    if form.flag("pack") {
        return pack(cx, form);
    }
    let modifiers = Modifiers {
        away: form.flag("rna"),
        rounding: form.rounding(),
        ftz: form.flag("ftz"),
        sat: form.flag("sat"),
        finite: form.flag("satfinite"),
        relu: form.flag("relu"),
    };
    if form.flag("tf32") {
        return to_tf32(cx, form, &modifiers);
    }
    let (to, from) = match (Type::next(&mut form)?, Type::next(&mut form)?) {
        (Type::Scalar(to), Type::Scalar(from)) => (to, from),
        (Type::Scalar(to), Type::Pair(from)) => {
            return from_pair(cx, &form, to, from, &modifiers);
        }
        (Type::Pair(to), from) => return to_pair(cx, &form, to, from, &modifiers),
    };
    if matches!(to, T::F16x2 | T::BF16x2) {
        return pair(cx, form, to, &modifiers);
    }
    let steps = steps(cx.program.isa, to, from, &modifiers).ok_or_else(|| form.unsupported())?;
    let [d, a] = form.operands()?;
    let source = cx.source_relaxed(a, from)?;
    let meaning = match steps.len() {
        1 => Meaning::of(&form.mnemonic()),
        _ => None,
    };
    chain(cx, d, to, source, &steps, meaning)
}

/// Emits steps one after the other. A destination wider than its type gets the value extended.
fn chain(
    cx: &mut Lowering<'_, '_>,
    destination: &Operand,
    to: ScalarType,
    mut source: Slot,
    steps: &[ConversionStep],
    meaning: Option<Meaning>,
) -> Result {
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
        cx.compute_as(meaning, (step.execute, step.imm), dst, &[source])?;
        source = dst;
    }
    match register {
        Some(register) if wide => {
            let signed = matches!(to, T::S8 | T::S16 | T::S32);
            let extend = if signed {
                unary(cx.program.isa, |a: i32| i64::from(a))
            } else {
                unary(cx.program.isa, |a: u32| u64::from(a))
            };
            cx.compute(extend, register.slot, &[source])
        }
        _ => Ok(()),
    }
}

/// The lane functions of a conversion, one after the other.
fn steps(isa: Isa, to: ScalarType, from: ScalarType, m: &Modifiers) -> Option<Vec<ConversionStep>> {
    let from_pair = matches!(from, T::F16x2 | T::BF16x2);
    if from_pair || m.away || m.relu && family(to) != Some(Family::Half) || m.finite {
        return None;
    }
    let one = |s: ConversionStep| Some(vec![s]);
    match (family(from)?, family(to)?) {
        (Family::Integer, Family::Integer) if m.sat => one(step_with(
            saturating(from, to)?,
            encode(integer(from)?, integer(to)?, Rounding::Zero),
            Class::of(to),
        )),
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

/// `cvt.rn.f16x2.f32 d, a, b`: `a` becomes the upper half.
fn pair(cx: &mut Lowering<'_, '_>, form: Form<'_>, to: ScalarType, m: &Modifiers) -> Result {
    let isa = cx.program.isa;
    let half = if to == T::F16x2 { T::F16 } else { T::BF16 };
    let [d, a, b] = form.operands()?;
    let mut halves = [Slot::default(); 2];
    for (slot, operand) in halves.iter_mut().zip([a, b]) {
        let steps = steps(isa, half, T::F32, m).ok_or_else(|| form.unsupported())?;
        let mut value = cx.source(operand, T::F32)?;
        for step in &steps {
            let dst = cx.scratch(Class::Word)?;
            cx.compute_with(step.execute, dst, &[value], step.imm)?;
            value = dst;
        }
        *slot = value;
    }
    let dst = cx.destination(d, to)?;
    let join = binary(isa, |upper: u32, lower: u32| upper << 16 | (lower & 0xffff));
    cx.compute(join, dst, &halves)
}

/// `cvt.rna.tf32.f32` and its kin
fn to_tf32(cx: &mut Lowering<'_, '_>, mut form: Form<'_>, m: &Modifiers) -> Result {
    let isa = cx.program.isa;
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
    cx.simple(&form, [T::B32, T::F32], execute, encode_rounding(rounding))
}

/// `cvt.pack.sat`
fn pack(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = cx.program.isa;
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
    cx.compute_with(execute, dst, &[a, b, c], imm)
}
