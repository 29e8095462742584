//! Moves and conversions of addresses (PTX ISA, "Data Movement and Conversion Instructions").

use super::addresses::space_of;
use super::element::copy_function;
use super::form::Form;
use super::frame::{Class, quad_half};
use super::lowering::Lowering;
use super::refusal::Result;
use crate::address;
use crate::exec::access::space;
use crate::exec::{binary, compare, predicate, unary};
use crate::meaning::{Meaning, Width};
use crate::ptx::ast::{Operand, ScalarType};
use ScalarType as T;

/// `mov`
pub(super) fn copy(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let scalar = form.scalar()?;
    let [d, a] = form.operands()?;
    match (d, a) {
        (Operand::Vector(_), _) | (_, Operand::Vector(_)) if scalar == T::Pred => {
            Err(form.unsupported())
        }
        (Operand::Vector(parts), _) => unpack(cx, &form, scalar, parts, a),
        (_, Operand::Vector(parts)) => pack(cx, &form, scalar, d, parts),
        _ => copy_scalar(cx, scalar, d, a),
    }
}

fn copy_scalar(cx: &mut Lowering<'_, '_>, scalar: ScalarType, d: &Operand, a: &Operand) -> Result {
    let isa = cx.program.isa;
    if scalar == T::Pred {
        let a = cx.predicate(a)?;
        let dst = cx.destination(d, scalar)?;
        let invert = u64::from(a.invert & 1);
        let meaning = Meaning::Predicate {
            combine: None,
            not: false,
        };
        return cx.compute_as(Some(meaning), (predicate::copy, invert), dst, &[a.slot]);
    }
    let source = cx.source(a, scalar)?;
    let dst = cx.destination(d, scalar)?;
    match Class::of(scalar) {
        Class::Quad => {
            for half in 0..2 {
                let copy = unary(isa, |a: u64| a);
                cx.compute(copy, quad_half(dst, half), &[quad_half(source, half)])?;
            }
            Ok(())
        }
        class => {
            let width = match class {
                Class::Double => Width::Double,
                _ => Width::Word,
            };
            let copy = (copy_function(isa, class), 0);
            cx.compute_as(Some(Meaning::Copy(width)), copy, dst, &[source])
        }
    }
}

/// Type of the parts when `scalar` is cut into `count`.
fn part_type(form: &Form<'_>, scalar: ScalarType, count: usize) -> Result<ScalarType> {
    let bits = 8 * scalar.bytes() as usize;
    match bits.checked_div(count) {
        Some(8) => Ok(T::B8),
        Some(16) => Ok(T::B16),
        Some(32) => Ok(T::B32),
        Some(64) if bits == 128 => Ok(T::B64),
        _ => Err(form.refuse(format!("cannot have {count} parts"))),
    }
}

fn pack(
    cx: &mut Lowering<'_, '_>,
    form: &Form<'_>,
    scalar: ScalarType,
    d: &Operand,
    parts: &[Operand],
) -> Result {
    let isa = cx.program.isa;
    let part = part_type(form, scalar, parts.len())?;
    let mut sources = Vec::with_capacity(parts.len());
    for operand in parts {
        sources.push(cx.source(operand, part)?);
    }
    let dst = cx.destination(d, scalar)?;
    let wide = cx.scratch(Class::Double)?;
    match (part, Class::of(scalar)) {
        (T::B64, _) => {
            let copy = unary(isa, |a: u64| a);
            let low = cx.scratch(Class::Double)?;
            cx.compute(copy, low, &[sources[0]])?;
            cx.compute(copy, wide, &[sources[1]])?;
            cx.compute(copy, quad_half(dst, 0), &[low])?;
            cx.compute(copy, quad_half(dst, 1), &[wide])
        }
        (T::B32, Class::Double) => {
            let join = binary(isa, |low: u32, high: u32| {
                u64::from(low) | u64::from(high) << 32
            });
            cx.compute(join, dst, &sources)
        }
        (T::B16, Class::Word) => {
            let join = binary(isa, |low: u32, high: u32| (low & 0xffff) | high << 16);
            cx.compute(join, dst, &sources)
        }
        (T::B8 | T::B16, Class::Word | Class::Double) => {
            // Part by part, from the top: shift what there is up, and put the next one below.
            let zero = cx.constant(0, Class::Double)?;
            cx.compute(unary(isa, |a: u64| a), wide, &[zero])?;
            for source in sources.iter().rev() {
                let join = match part {
                    T::B8 => binary(isa, |above: u64, a: u8| above << 8 | u64::from(a)),
                    _ => binary(isa, |above: u64, a: u16| above << 16 | u64::from(a)),
                };
                cx.compute(join, wide, &[wide, *source])?;
            }
            match Class::of(scalar) {
                Class::Double => cx.compute(unary(isa, |a: u64| a), dst, &[wide]),
                _ => cx.compute(unary(isa, |a: u64| a as u32), dst, &[wide]),
            }
        }
        _ => Err(form.unsupported()),
    }
}

fn unpack(
    cx: &mut Lowering<'_, '_>,
    form: &Form<'_>,
    scalar: ScalarType,
    parts: &[Operand],
    a: &Operand,
) -> Result {
    let isa = cx.program.isa;
    let part = part_type(form, scalar, parts.len())?;
    let source = cx.source(a, scalar)?;
    let wide = cx.scratch(Class::Double)?;
    match Class::of(scalar) {
        // A copy, because a part may be the register that is being cut.
        Class::Word => cx.compute(unary(isa, |a: u32| u64::from(a)), wide, &[source])?,
        Class::Double => cx.compute(unary(isa, |a: u64| a), wide, &[source])?,
        _ if part == T::B64 => {
            for (half, operand) in (0..).zip(parts) {
                let dst = cx.destination(operand, part)?;
                cx.compute(unary(isa, |a: u64| a), dst, &[quad_half(source, half)])?;
            }
            return Ok(());
        }
        _ => return Err(form.unsupported()),
    }
    let width = 8 * part.bytes();
    for (index, operand) in (0..).zip(parts) {
        if matches!(operand, Operand::Sink) {
            continue;
        }
        let dst = cx.destination(operand, part)?;
        let distance = cx.constant(u64::from(width * index), Class::Word)?;
        let cut = match part {
            T::B8 => binary(isa, |a: u64, by: u32| (a >> (by & 63)) as u8),
            T::B16 => binary(isa, |a: u64, by: u32| (a >> (by & 63)) as u16),
            _ => binary(isa, |a: u64, by: u32| (a >> (by & 63)) as u32),
        };
        cx.compute(cut, dst, &[wide, distance])?;
    }
    Ok(())
}

/// Start of the window of the state space that an instruction names, in generic addresses.
fn window(form: &mut Form<'_>) -> Result<u64> {
    // Parameters of device functions are in local memory, and have no window.
    if form.flag("param::func") {
        return Err(form.unsupported());
    }
    match space_of(form) {
        space::GLOBAL => Ok(0),
        space::LOCAL => Ok(address::LOCAL.start),
        space::PARAMETER => Ok(address::PARAMETERS.start),
        space::SHARED => Ok(address::SHARED.start),
        _ => Err(form.refuse("names no state space")),
    }
}

/// `cvta`
pub(super) fn convert_address(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = cx.program.isa;
    let to_space = form.flag("to");
    let start = window(&mut form)?;
    let scalar = form.scalar()?;
    if Class::of(scalar) != Class::Double {
        return Err(form.refuse("is for 32-bit addresses; modules must have 64-bit addresses"));
    }
    let start = cx.constant(start, Class::Double)?;
    let (execute, same) = if to_space {
        let subtract = binary(isa, |a: u64, start: u64| a.wrapping_sub(start));
        (subtract, "sub.u64")
    } else {
        let add = binary(isa, |a: u64, start: u64| a.wrapping_add(start));
        (add, "add.u64")
    };
    let [d, a] = form.operands()?;
    let a = cx.source(a, scalar)?;
    let dst = cx.destination(d, scalar)?;
    cx.compute_as(Meaning::of(same), (execute, 0), dst, &[a, start])
}

/// `isspacep`
pub(super) fn is_in_space(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = cx.program.isa;
    let global = form.flag("global");
    let range = if form.flag("const") {
        address::CONST_VARIABLES
    } else if global {
        address::SHARED.start..address::PARAMETERS.end
    } else {
        match window(&mut form)? {
            start if start == address::LOCAL.start => address::LOCAL,
            start if start == address::PARAMETERS.start => address::PARAMETERS,
            _ => address::SHARED,
        }
    };
    let execute = compare(isa, |a: u64, start: u64| a >= start);
    let below = compare(isa, |a: u64, end: u64| a < end);
    let [d, a] = form.operands()?;
    let a = cx.source(a, T::U64)?;
    let dst = cx.destination(d, T::Pred)?;
    let (from, to) = (cx.scratch(Class::Predicate)?, cx.scratch(Class::Predicate)?);
    let unused = cx.scratch(Class::Predicate)?;
    for (truth, bound, execute) in [(from, range.start, execute), (to, range.end, below)] {
        let b = cx.constant(bound, Class::Double)?;
        cx.compare(execute, [truth, unused], [a, b])?;
    }
    cx.compute(predicate::and, dst, &[from, to])?;
    if global {
        cx.compute(predicate::not, dst, &[dst])?;
    }
    Ok(())
}

/// `mapa`, `getctarank`: a block is a cluster of its own.
pub(super) fn cluster_address(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = cx.program.isa;
    form.discard(|m| m.starts_with("shared"));
    let scalar = form.scalar()?;
    let operands = &form.instruction.operands;
    let ([d, ..], [_, a, ..]) = (operands.as_slice(), operands.as_slice()) else {
        return Err(form.unsupported());
    };
    form.done()?;
    if form.instruction.opcode == "getctarank" {
        let zero = cx.constant(0, Class::Word)?;
        let dst = cx.destination(d, T::U32)?;
        return cx.compute(unary(isa, |a: u32| a), dst, &[zero]);
    }
    copy_scalar(cx, scalar, d, a)
}
