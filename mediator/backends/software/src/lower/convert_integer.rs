//! Lane functions of `cvt` between integers.

use super::arithmetic::{Family, family};
use super::convert::{StepOf, step};
use super::frame::{Class, scalar_bytes};
use crate::arith::Rounding;
use crate::arith::convert::{self as arith, Integer};
use crate::exec::{unary, unary_with};
use crate::isa::Isa;
use crate::program::Exec;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// The integer that a type is.
pub(super) fn integer(scalar: ScalarType) -> Option<Integer> {
    let signed = matches!(scalar, T::S8 | T::S16 | T::S32 | T::S64);
    (family(scalar)? == Family::Integer).then(|| Integer {
        bits: 8 * scalar_bytes(scalar),
        signed,
    })
}

/// Two integer types and a rounding mode in an immediate.
pub(super) fn encode(from: Integer, to: Integer, rounding: Rounding) -> u64 {
    let one = |i: Integer| u64::from(i.bits) | u64::from(i.signed) << 7;
    one(from) | one(to) << 8 | (rounding as u64) << 16
}

/// What [`encode`] has put into an immediate.
pub(super) fn decode(imm: u64) -> (Integer, Integer, Rounding) {
    let one = |bits: u64| Integer {
        bits: (bits & 0x7f) as u32,
        signed: bits & 0x80 != 0,
    };
    let rounding = Rounding::ALL[(imm >> 16) as usize & 3];
    (one(imm), one(imm >> 8), rounding)
}

/// Extends what is read from a short type, changes the class, and cuts to a short type: as much of it as needed.
pub(super) fn between_integers(isa: Isa, from: ScalarType, to: ScalarType) -> Option<Vec<StepOf>> {
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

/// Clamps to the target's range.
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
