//! Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision
//! Arithmetic").

use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::arith::integer::{self as arith, Integer};
use crate::exec::{
    CARRY_IN, CARRY_OUT, binary, binary_with, carrying, ternary, ternary_with, unary,
};
use crate::isa::Isa;
use crate::program::Exec;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// A lane function of which only the low bits matter: the same for signed and unsigned types, and
/// for 16 bits, whose registers are words. `None` for types that are no integers.
macro_rules! wrapping {
    ($isa:expr, $scalar:expr, $shape:ident, |$($name:ident),+| $body:expr) => {
        match $scalar {
            T::U16 | T::S16 | T::U32 | T::S32 => Some($shape($isa, |$($name: u32),+| $body)),
            T::U64 | T::S64 => Some($shape($isa, |$($name: u64),+| $body)),
            _ => None,
        }
    };
}

/// A lane function for every integer type of 16 to 64 bits; `None` for other types.
macro_rules! integers {
    ($isa:expr, $scalar:expr, $shape:ident, |$($name:ident),+| $body:expr) => {
        match $scalar {
            T::U16 => Some($shape(Isa::Baseline, |$($name: u16),+| $body)),
            T::S16 => Some($shape(Isa::Baseline, |$($name: i16),+| $body)),
            T::U32 => Some($shape($isa, |$($name: u32),+| $body)),
            T::S32 => Some($shape($isa, |$($name: i32),+| $body)),
            T::U64 => Some($shape($isa, |$($name: u64),+| $body)),
            T::S64 => Some($shape($isa, |$($name: i64),+| $body)),
            _ => None,
        }
    };
}

/// `add`, `sub`, with `.sat` and `.cc`
pub(super) fn add_or_sub(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    if form.flag("cc") {
        return carry_operation(cx, &mut form, CARRY_OUT);
    }
    let (isa, add) = (cx.program.isa, form.instruction.opcode == "add");
    let (sat, scalar) = (form.flag("sat"), form.scalar()?);
    let execute = match (add, sat) {
        (true, false) => wrapping!(isa, scalar, binary, |a, b| a.wrapping_add(b)),
        (false, false) => wrapping!(isa, scalar, binary, |a, b| a.wrapping_sub(b)),
        (true, true) if scalar == T::S32 => Some(binary(isa, i32::saturating_add)),
        (false, true) if scalar == T::S32 => Some(binary(isa, i32::saturating_sub)),
        _ => None,
    };
    cx.simple(&form, [scalar; 3], execute, 0)
}

/// `addc`, `subc`
pub(super) fn with_carry(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let out = if form.flag("cc") { CARRY_OUT } else { 0 };
    carry_operation(cx, &mut form, CARRY_IN | out)
}

fn carry_operation(cx: &mut Lowering<'_, '_>, form: &mut Form<'_>, flags: u64) -> Result {
    let scalar = form.scalar()?;
    let add = form.instruction.opcode.starts_with("add");
    let execute = carry_function(cx.program.isa, scalar, add).ok_or_else(|| form.unsupported())?;
    let [d, a, b] = form.operands()?;
    let (a, b) = (cx.source(a, scalar)?, cx.source(b, scalar)?);
    let dst = cx.destination(d, scalar)?;
    let carry = cx.carry()?;
    cx.compute_with(execute, dst, &[a, b, carry], flags)
}

fn carry_function(isa: Isa, scalar: ScalarType, add: bool) -> Option<Exec> {
    Some(match (Class::of(scalar), add) {
        (Class::Word, true) => carrying(isa, arith::add_carry_u32),
        (Class::Word, false) => carrying(isa, arith::sub_borrow_u32),
        (Class::Double, true) => carrying(isa, arith::add_carry_u64),
        (Class::Double, false) => carrying(isa, arith::sub_borrow_u64),
        _ => return None,
    })
}

crate::modifiers::modifiers! {
    /// Which part of a product is wanted.
    Part {
        Low = "lo",
        High = "hi",
        Wide = "wide",
    }
}

fn part(form: &mut Form<'_>) -> Result<Part> {
    let part = form.find(Part::from_modifier);
    part.ok_or_else(|| form.refuse("has none of `.lo`, `.hi`, `.wide`"))
}

fn product(isa: Isa, scalar: ScalarType, part: Part) -> Option<Exec> {
    match part {
        Part::Low => wrapping!(isa, scalar, binary, |a, b| a.wrapping_mul(b)),
        Part::High => integers!(isa, scalar, binary, |a, b| a.multiply_high(b)),
        Part::Wide => Some(match scalar {
            T::U16 => binary(isa, |a: u16, b: u16| u32::from(a) * u32::from(b)),
            T::S16 => binary(isa, |a: i16, b: i16| i32::from(a) * i32::from(b)),
            T::U32 => binary(isa, |a: u32, b: u32| u64::from(a) * u64::from(b)),
            T::S32 => binary(isa, |a: i32, b: i32| i64::from(a) * i64::from(b)),
            _ => return None,
        }),
    }
}

/// The type of a product.
fn product_type(scalar: ScalarType, part: Part) -> ScalarType {
    match (part, scalar) {
        (Part::Wide, T::U16) => T::U32,
        (Part::Wide, T::S16) => T::S32,
        (Part::Wide, T::U32) => T::U64,
        (Part::Wide, T::S32) => T::S64,
        _ => scalar,
    }
}

/// `mul`
pub(super) fn multiply(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (part, scalar) = (part(&mut form)?, form.scalar()?);
    let execute = product(cx.program.isa, scalar, part).ok_or_else(|| form.unsupported())?;
    let to = product_type(scalar, part);
    cx.simple(&form, [to, scalar, scalar], execute, 0)
}

/// `mad`, `madc`, with `.cc` and `.sat`
pub(super) fn multiply_add(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let carry_in = if form.instruction.opcode == "madc" {
        CARRY_IN
    } else {
        0
    };
    let carry_out = if form.flag("cc") { CARRY_OUT } else { 0 };
    let (sat, part, scalar) = (form.flag("sat"), part(&mut form)?, form.scalar()?);
    let isa = cx.program.isa;
    let to = product_type(scalar, part);
    let flags = carry_in | carry_out;
    if flags != 0 {
        let multiply = product(isa, scalar, part).filter(|_| part != Part::Wide);
        let steps = multiply.zip(carry_function(isa, scalar, true));
        return in_two_steps(cx, &form, [scalar, to], steps, [0, flags]);
    }
    if sat {
        let wanted = scalar == T::S32 && part == Part::High;
        let execute = wanted.then(|| ternary(isa, arith::mad_hi_sat_s32));
        return cx.simple(&form, [scalar; 4], execute, 0);
    }
    let fused = match (part, scalar) {
        (Part::Low, _) => {
            wrapping!(isa, scalar, ternary, |a, b, c| a
                .wrapping_mul(b)
                .wrapping_add(c))
        }
        (Part::Wide, T::U32) => Some(ternary(isa, |a: u32, b: u32, c: u64| {
            (u64::from(a) * u64::from(b)).wrapping_add(c)
        })),
        (Part::Wide, T::S32) => Some(ternary(isa, |a: i32, b: i32, c: i64| {
            (i64::from(a) * i64::from(b)).wrapping_add(c)
        })),
        _ => None,
    };
    if let Some(execute) = fused {
        return cx.simple(&form, [to, scalar, scalar, to], execute, 0);
    }
    let add = wrapping!(isa, to, binary, |a, b| a.wrapping_add(b));
    let steps = product(isa, scalar, part).zip(add);
    in_two_steps(cx, &form, [scalar, to], steps, [0, 0])
}

/// `a * b + c` by two operations with an immediate each: the product, of type `to`, then the sum. A
/// sum with an immediate takes part in the carry.
fn in_two_steps(
    cx: &mut Lowering<'_, '_>,
    form: &Form<'_>,
    [scalar, to]: [ScalarType; 2],
    steps: Option<(Exec, Exec)>,
    [imm, flags]: [u64; 2],
) -> Result {
    let (multiply, add) = steps.ok_or_else(|| form.unsupported())?;
    let [d, a, b, c] = form.operands()?;
    let [a, b, c] = cx.sources([a, b, c], [scalar, scalar, to])?;
    let middle = cx.scratch(Class::of(to))?;
    cx.compute_with(multiply, middle, &[a, b], imm)?;
    let dst = cx.destination(d, to)?;
    let carry = if flags == 0 { middle } else { cx.carry()? };
    cx.compute_with(add, dst, &[middle, c, carry], flags)
}

/// `mul24`, `mad24`
pub(super) fn multiply_24(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = Isa::Baseline;
    let (sat, part, scalar) = (form.flag("sat"), part(&mut form)?, form.scalar()?);
    if !matches!(scalar, T::U32 | T::S32) || part == Part::Wide {
        return Err(form.unsupported());
    }
    let signed = u64::from(scalar == T::S32);
    let execute = match part {
        Part::High => binary_with(isa, |a, b, signed| arith::mul24_hi(a, b, signed != 0)),
        _ => binary_with(isa, |a, b, signed| arith::mul24_lo(a, b, signed != 0)),
    };
    if form.instruction.opcode == "mul24" {
        return cx.simple(&form, [scalar; 3], execute, signed);
    }
    if sat {
        let saturating = ternary(isa, arith::mad24_hi_sat_s32);
        return cx.simple(&form, [scalar; 4], saturating, 0);
    }
    let steps = Some((execute, binary(isa, u32::wrapping_add)));
    in_two_steps(cx, &form, [scalar, scalar], steps, [signed, 0])
}

/// `div`, `rem`
pub(super) fn divide(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    // Hosts divide one by one.
    let (isa, scalar) = (Isa::Baseline, form.scalar()?);
    let execute = if form.instruction.opcode == "div" {
        integers!(isa, scalar, binary, |a, b| a.divide(b))
    } else {
        integers!(isa, scalar, binary, |a, b| a.remainder(b))
    };
    cx.simple(&form, [scalar; 3], execute, 0)
}

/// `abs`, `neg`
pub(super) fn sign(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, scalar) = (cx.program.isa, form.scalar()?);
    let execute = match (form.instruction.opcode.as_str(), scalar) {
        ("abs", T::S16) => unary(isa, i16::wrapping_abs),
        ("abs", T::S32) => unary(isa, i32::wrapping_abs),
        ("abs", T::S64) => unary(isa, i64::wrapping_abs),
        ("neg", T::S16) => unary(isa, i16::wrapping_neg),
        ("neg", T::S32) => unary(isa, i32::wrapping_neg),
        ("neg", T::S64) => unary(isa, i64::wrapping_neg),
        _ => return Err(form.unsupported()),
    };
    cx.simple(&form, [scalar; 2], execute, 0)
}

/// `min`, `max`
pub(super) fn extreme(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, relu, scalar) = (cx.program.isa, form.flag("relu"), form.scalar()?);
    let execute = match (form.instruction.opcode.as_str(), relu) {
        ("min", false) => integers!(isa, scalar, binary, |a, b| a.min(b)),
        ("max", false) => integers!(isa, scalar, binary, |a, b| a.max(b)),
        ("min", true) if scalar == T::S32 => Some(binary(isa, |a: i32, b: i32| a.min(b).max(0))),
        ("max", true) if scalar == T::S32 => Some(binary(isa, |a: i32, b: i32| a.max(b).max(0))),
        _ => None,
    };
    cx.simple(&form, [scalar; 3], execute, 0)
}

/// `sad`
pub(super) fn sum_of_differences(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, scalar) = (Isa::Baseline, form.scalar()?);
    let execute = integers!(isa, scalar, ternary, |a, b, c| a.add_difference(b, c));
    cx.simple(&form, [scalar; 4], execute, 0)
}

/// `dp4a`, `dp2a`. Bits of the immediate: signedness of a, of b, upper halves.
pub(super) fn dot_product(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = Isa::Baseline;
    let high = form.one_of(&["lo", "hi"]) == Some("hi");
    let (a, b) = (form.scalar()?, form.scalar()?);
    let imm = u64::from(a == T::S32) | u64::from(b == T::S32) << 1 | u64::from(high) << 2;
    let execute = if form.instruction.opcode == "dp4a" {
        ternary_with(isa, |a: u32, b: u32, c: u32, imm| {
            arith::dp4a(a, b, c, imm & 1 != 0, imm & 2 != 0)
        })
    } else {
        ternary_with(isa, |a: u32, b: u32, c: u32, imm| {
            arith::dp2a(a, b, c, imm & 1 != 0, imm & 2 != 0, imm & 4 != 0)
        })
    };
    cx.simple(&form, [T::U32; 4], execute, imm)
}
