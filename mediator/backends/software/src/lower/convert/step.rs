//! Steps of a conversion, and what their immediates hold.

use crate::arith::Rounding;
use crate::arith::convert::Integer;
use crate::lower::family::{Family, family};
use crate::lower::frame::Class;
use crate::program::Exec;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// Modifiers of a conversion.
pub(super) struct Modifiers {
    pub(super) rounding: Option<Rounding>,
    pub(super) away: bool,
    pub(super) ftz: bool,
    pub(super) sat: bool,
    pub(super) finite: bool,
    pub(super) relu: bool,
}

/// One lane function of a conversion, with its immediate and the class of its result.
pub(super) struct ConversionStep {
    pub(super) execute: Exec,
    pub(super) imm: u64,
    pub(super) class: Class,
}

/// Returns a step without an immediate.
pub(super) fn step(execute: Exec, class: Class) -> ConversionStep {
    step_with(execute, 0, class)
}

/// Returns a step with an immediate.
pub(super) fn step_with(execute: Exec, imm: u64, class: Class) -> ConversionStep {
    ConversionStep {
        execute,
        imm,
        class,
    }
}

/// Returns an immediate that holds only a rounding mode, where [`decode`] finds it.
pub(super) fn encode_rounding(rounding: Rounding) -> u64 {
    (rounding as u64) << 16
}

/// Returns width and signedness of an integer type; `None` for other types.
pub(super) fn integer(scalar: ScalarType) -> Option<Integer> {
    let signed = matches!(scalar, T::S8 | T::S16 | T::S32 | T::S64);
    (family(scalar)? == Family::Integer).then(|| Integer {
        bits: 8 * scalar.bytes(),
        signed,
    })
}

/// Returns an immediate that holds two integer types and a rounding mode.
pub(super) fn encode(from: Integer, to: Integer, rounding: Rounding) -> u64 {
    let one = |i: Integer| u64::from(i.bits) | u64::from(i.signed) << 7;
    one(from) | one(to) << 8 | encode_rounding(rounding)
}

/// Returns the types and the rounding mode that [`encode`] put into an immediate.
pub(super) fn decode(imm: u64) -> (Integer, Integer, Rounding) {
    let one = |bits: u64| Integer {
        bits: (bits & 0x7f) as u32,
        signed: bits & 0x80 != 0,
    };
    let rounding = Rounding::ALL[(imm >> 16) as usize & 3];
    (one(imm), one(imm >> 8), rounding)
}
