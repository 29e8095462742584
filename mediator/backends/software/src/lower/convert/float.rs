//! Lane functions of `cvt` from and to floats.

use super::step::{
    ConversionStep, Modifiers, decode, encode, encode_rounding, integer, step, step_with,
};
use crate::arith::convert as arith;
use crate::arith::float16::Half;
use crate::arith::format::{BF16, F16, F32, F64};
use crate::arith::{Rounding, float32};
use crate::exec::{unary, unary_with};
use crate::isa::Isa;
use crate::lower::element::copy_function;
use crate::lower::frame::Class;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// Returns the lane function that converts an integer to a float.
pub(super) fn from_integer(
    isa: Isa,
    from: ScalarType,
    to: ScalarType,
    rounding: Rounding,
) -> Option<ConversionStep> {
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
    Some(step_with(
        execute,
        encode(from, from, rounding),
        Class::of(to),
    ))
}

/// A lane function of a float of any type, widened to `f64`, and the immediate.
macro_rules! from_float {
    ($from:expr, |$value:ident, $imm:ident| $result:expr) => {
        match $from {
            T::F16 => {
                from_float!(@ u16, |$value, $imm| f64::from(Half::F16.widen($value)), $result)
            }
            T::BF16 => {
                from_float!(@ u16, |$value, $imm| f64::from(Half::BF16.widen($value)), $result)
            }
            T::F32 => from_float!(@ f32, |$value, $imm| f64::from($value), $result),
            _ => from_float!(@ f64, |$value, $imm| $value, $result),
        }
    };
    (@ $type:ty, |$value:ident, $imm:ident| $widened:expr, $result:expr) => {
        unary_with(Isa::Baseline, |$value: $type, $imm| {
            let $value = $widened;
            $result
        })
    };
}

/// Returns the lane functions that convert a float to an integer.
pub(super) fn to_integer(
    isa: Isa,
    to: ScalarType,
    from: ScalarType,
    m: &Modifiers,
) -> Option<Vec<ConversionStep>> {
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
    let execute = match Class::of(to) {
        Class::Word => from_float!(from, |a, imm| whole(a, imm) as u32),
        _ => from_float!(from, |a, imm| whole(a, imm)),
    };
    let target = integer(to)?;
    steps.push(step_with(
        execute,
        encode(target, target, rounding) | u64::from(from == T::F64) << FROM_F64,
        Class::of(to),
    ));
    Some(steps)
}

/// Bit of the immediate of [`to_integer`]: the source is `.f64`, whose NaN converts differently.
const FROM_F64: u32 = 24;

fn whole(value: f64, imm: u64) -> u64 {
    let (_, to, rounding) = decode(imm);
    arith::float_to_integer(value, rounding, to, imm >> FROM_F64 & 1 != 0)
}

/// Returns the lane functions that convert a float to a float.
pub(super) fn between_floats(
    isa: Isa,
    to: ScalarType,
    from: ScalarType,
    m: &Modifiers,
) -> Option<Vec<ConversionStep>> {
    let mut steps = Vec::new();
    if m.ftz && from == T::F32 {
        steps.push(step(unary(isa, float32::flush), Class::Word));
    }
    let rounding = m.rounding.unwrap_or(Rounding::Nearest);
    let nearest = rounding == Rounding::Nearest;
    if from == to {
        steps.push(integral(isa, from, m.rounding)?);
    } else {
        let execute = match (from, to) {
            (T::F16, T::F32) => unary(isa, |a: u16| Half::F16.widen(a)),
            (T::BF16, T::F32) => unary(isa, |a: u16| Half::BF16.widen(a)),
            (T::F16, T::F64) => unary(isa, |a: u16| f64::from(Half::F16.widen(a))),
            (T::BF16, T::F64) => unary(isa, |a: u16| f64::from(Half::BF16.widen(a))),
            (T::F32, T::F64) => unary(isa, |a: f32| f64::from(a)),
            (T::F64, T::F32) if nearest => unary(isa, |a: f64| a as f32),
            (T::F64, T::F32) => unary_with(Isa::Baseline, |a: f64, imm| {
                float32::narrow(a, decode(imm).2)
            }),
            (T::F32, T::F16) if nearest => unary(isa, |a: f32| Half::F16.nearest(a)),
            (T::F32, T::BF16) if nearest => unary(isa, |a: f32| Half::BF16.nearest(a)),
            (T::F16, T::BF16) => unary(isa, |a: u16| Half::BF16.nearest(Half::F16.widen(a))),
            (T::BF16, T::F16) => unary(isa, |a: u16| Half::F16.nearest(Half::BF16.widen(a))),
            (_, T::F16) => from_float!(from, |a, imm| Half::F16.round(a, decode(imm).2)),
            (_, T::BF16) => from_float!(from, |a, imm| Half::BF16.round(a, decode(imm).2)),
            _ => return None,
        };
        steps.push(step_with(execute, encode_rounding(rounding), Class::of(to)));
    }
    finish_float(isa, to, m, &mut steps)?;
    Some(steps)
}

/// A float of the same type: without its fraction if there is a rounding mode.
fn integral(isa: Isa, scalar: ScalarType, rounding: Option<Rounding>) -> Option<ConversionStep> {
    let class = Class::of(scalar);
    let Some(rounding) = rounding else {
        return Some(step(copy_function(isa, class), class));
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
    Some(step_with(execute, encode_rounding(rounding), class))
}

/// Adds to `steps` what `.ftz`, `.sat` and `.relu` do to a float result; `None` if the type has no
/// such modifier.
pub(super) fn finish_float(
    isa: Isa,
    to: ScalarType,
    m: &Modifiers,
    steps: &mut Vec<ConversionStep>,
) -> Option<()> {
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
