//! `cvt` to and from pairs of 8-bit floats (PTX ISA, "cvt": `.e4m3x2` and `.e5m2x2`).

use super::step::Modifiers;
use crate::arith::Rounding;
use crate::arith::float8::{Float8, rectify_pair};
use crate::arith::float16::{Half, pair1};
use crate::exec::{binary, unary};
use crate::isa::Isa;
use crate::lower::form::Form;
use crate::lower::lowering::Lowering;
use crate::lower::refusal::Result;
use crate::program::Exec;
use crate::ptx::ast::{Operand, ScalarType};
use ScalarType as T;

/// Type of an operand of `cvt`.
#[derive(Clone, Copy)]
pub(super) enum Type {
    /// A fundamental type or a pair of halves.
    Scalar(ScalarType),
    /// A pair of 8-bit floats in a `.b16` register; no variable can have this type.
    Pair(Float8),
}

impl Type {
    /// Takes the next modifier that is a type.
    pub(super) fn next(form: &mut Form<'_>) -> Result<Self> {
        let read = |word: &str| {
            let pair = Float8::from_modifier(word).map(Self::Pair);
            pair.or_else(|| ScalarType::from_modifier(word).map(Self::Scalar))
        };
        form.find(read).ok_or_else(|| form.without_type())
    }
}

/// `cvt.rn.satfinite.e4m3x2.f32 d, a, b` and `cvt.rn.satfinite.e4m3x2.f16x2 d, a`
pub(super) fn to_pair(
    cx: &mut Lowering<'_, '_>,
    form: &Form<'_>,
    to: Float8,
    from: Type,
    m: &Modifiers,
) -> Result {
    // PTX has these conversions only with `.satfinite`: `.e4m3` has no infinity to overflow to.
    if !(is_plain(m) && m.finite) {
        return Err(form.unsupported());
    }
    let isa = cx.program.isa;
    let rectify = m.relu.then(|| unary(isa, rectify_pair));
    match from {
        Type::Scalar(T::F32) => {
            let [d, a, b] = form.operands()?;
            let sources = [(a, T::F32), (b, T::F32)];
            emit(cx, (d, T::B16), &sources, from_floats(isa, to), rectify)
        }
        Type::Scalar(T::F16x2) => {
            let [d, a] = form.operands()?;
            let sources = [(a, T::F16x2)];
            emit(cx, (d, T::B16), &sources, from_halves(isa, to), rectify)
        }
        _ => Err(form.unsupported()),
    }
}

/// `cvt.rn.f16x2.e4m3x2 d, a`
pub(super) fn from_pair(
    cx: &mut Lowering<'_, '_>,
    form: &Form<'_>,
    to: ScalarType,
    from: Float8,
    m: &Modifiers,
) -> Result {
    if to != T::F16x2 || !is_plain(m) || m.finite {
        return Err(form.unsupported());
    }
    let isa = cx.program.isa;
    let rectify = m
        .relu
        .then(|| unary(isa, |a: u32| pair1(a, |half| Half::F16.rectify(half))));
    let [d, a] = form.operands()?;
    emit(cx, (d, to), &[(a, T::B16)], to_halves(isa, from), rectify)
}

/// Returns whether a conversion has `.rn` and no modifiers that these conversions do not have.
fn is_plain(m: &Modifiers) -> bool {
    m.rounding == Some(Rounding::Nearest) && !(m.away || m.ftz || m.sat)
}

/// Emits a conversion, and then what `.relu` adds.
fn emit(
    cx: &mut Lowering<'_, '_>,
    (destination, to): (&Operand, ScalarType),
    operands: &[(&Operand, ScalarType)],
    execute: Exec,
    rectify: Option<Exec>,
) -> Result {
    let mut sources = Vec::new();
    for (operand, scalar) in operands {
        sources.push(cx.source(operand, *scalar)?);
    }
    let dst = cx.destination(destination, to)?;
    cx.compute(execute, dst, &sources)?;
    match rectify {
        Some(rectify) => cx.compute(rectify, dst, &[dst]),
        None => Ok(()),
    }
}

/// Lane functions capture nothing, so that there is one for each format.
macro_rules! formats {
    ($format:expr, |$F:ident| $function:expr) => {
        match $format {
            Float8::E4M3 => {
                const $F: Float8 = Float8::E4M3;
                $function
            }
            Float8::E5M2 => {
                const $F: Float8 = Float8::E5M2;
                $function
            }
        }
    };
}

fn from_floats(isa: Isa, to: Float8) -> Exec {
    formats!(to, |F| binary(isa, |a: f32, b: f32| F.pair(a, b)))
}

fn from_halves(isa: Isa, to: Float8) -> Exec {
    formats!(to, |F| unary(isa, |a: u32| F.narrow_pair(a)))
}

fn to_halves(isa: Isa, from: Float8) -> Exec {
    formats!(from, |F| unary(isa, |a: u16| F.widen_pair(a)))
}
