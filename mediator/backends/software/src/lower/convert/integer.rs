//! Lane functions of `cvt` between integers.

use super::step::{ConversionStep, decode, integer, step};
use crate::arith::convert as arith;
use crate::exec::{unary, unary_with};
use crate::isa::Isa;
use crate::lower::element::copy_function;
use crate::lower::frame::Class;
use crate::program::Exec;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// Returns the lane functions that convert an integer to an integer: they extend a short source,
/// change the class of the register, and cut to a short target, as far as that is needed.
pub(super) fn between_integers(
    isa: Isa,
    from: ScalarType,
    to: ScalarType,
) -> Option<Vec<ConversionStep>> {
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
        let class = Class::of(to);
        steps.push(step(copy_function(isa, class), class));
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

/// Returns the lane function that limits an integer to the range of another type.
pub(super) fn saturating(from: ScalarType, to: ScalarType) -> Option<Exec> {
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
