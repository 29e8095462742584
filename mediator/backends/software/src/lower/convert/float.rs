//! Lane functions of `cvt` from and to floats.

use super::step::{Modifiers, StepOf, decode, encode, integer, step};
use crate::arith::convert as arith;
use crate::arith::float16::Half;
use crate::arith::format::{BF16, F16, F32, F64};
use crate::arith::{Rounding, float32};
use crate::exec::{unary, unary_with};
use crate::isa::Isa;
use crate::lower::frame::Class;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// From an integer to a float.
pub(super) fn from_integer(
    isa: Isa,
    from: ScalarType,
    to: ScalarType,
    rounding: Rounding,
) -> Option<StepOf> {
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

/// From a float to an integer.
pub(super) fn to_integer(
    isa: Isa,
    to: ScalarType,
    from: ScalarType,
    m: &Modifiers,
) -> Option<Vec<StepOf>> {
    let rounding = m.rounding?;
    if matches!(from, T::F16x2 | T::BF16x2) {
        return None;
    }
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

/// From a float to a float.
pub(super) fn between_floats(
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
pub(super) fn finish_float(
    isa: Isa,
    to: ScalarType,
    m: &Modifiers,
    steps: &mut Vec<StepOf>,
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
