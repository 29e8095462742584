//! Matrices that a warp holds together (PTX ISA, "Warp Level Matrix Instructions").

use super::addresses::{Address, space_of};
use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::exec::access::address_kind;
use crate::exec::matrix;
use crate::program::{Action, Element, Exec, MatrixSite, Op, Sum};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;
use ScalarType as T;

/// Shapes with rows of the result, and depth. All have 8 columns.
const SHAPES: [(&str, usize, usize); 8] = [
    ("m16n8k4", 16, 4),
    ("m16n8k8", 16, 8),
    ("m16n8k16", 16, 16),
    ("m16n8k32", 16, 32),
    ("m16n8k64", 16, 64),
    ("m8n8k16", 8, 16),
    ("m8n8k32", 8, 32),
    ("m8n8k4", 8, 4),
];

/// An element of factors.
struct Factor {
    word: &'static str,
    element: Element,
    bits: usize,
    /// Depths of products with 16 rows, and with 8.
    depths: [&'static [usize]; 2],
}

const fn factor(
    word: &'static str,
    element: Element,
    bits: usize,
    depths: [&'static [usize]; 2],
) -> Factor {
    Factor {
        word,
        element,
        bits,
        depths,
    }
}

const FACTORS: [Factor; 7] = [
    factor("f16", Element::F16, 16, [&[8, 16], &[]]),
    factor("bf16", Element::Bf16, 16, [&[8, 16], &[]]),
    factor("tf32", Element::Tf32, 32, [&[4, 8], &[]]),
    factor("s8", Element::S8, 8, [&[16, 32], &[16]]),
    factor("u8", Element::U8, 8, [&[16, 32], &[16]]),
    factor("s4", Element::S4, 4, [&[32, 64], &[32]]),
    factor("u4", Element::U4, 4, [&[32, 64], &[32]]),
];

/// `mma`
pub(super) fn multiply(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    for flag in ["sync", "aligned", "row", "col"] {
        if !form.flag(flag) {
            return Err(form.unsupported());
        }
    }
    let place = |word| form.instruction.modifiers.iter().position(|m| m == word);
    if place("row") > place("col") {
        return Err(form.unsupported());
    }
    let saturated = form.flag("satfinite");
    let (rows, depth) = form
        .find(|word| SHAPES.iter().find(|(name, ..)| *name == word))
        .map(|(_, rows, depth)| (*rows, *depth))
        .ok_or_else(|| form.unsupported())?;
    let mut next = || form.one_of(&["f32", "f16", "bf16", "tf32", "s32", "s8", "u8", "s4", "u4"]);
    let [d_type, a_type, b_type, c_type] = [next(), next(), next(), next()];
    let element = |name: Option<&str>| {
        let factor = FACTORS.iter().find(|factor| Some(factor.word) == name)?;
        let [tall, short] = factor.depths;
        let depths = if rows == 16 { tall } else { short };
        let has = depths.contains(&depth);
        has.then_some((factor.element, factor.bits))
    };
    let (Some((left, bits)), Some((right, right_bits))) = (element(a_type), element(b_type)) else {
        return Err(form.unsupported());
    };
    let is_integer = bits < 16;
    let sum = match (c_type, is_integer, saturated) {
        (Some("f32"), false, false) => Sum::F32,
        (Some("f16"), false, false) if left == Element::F16 => Sum::F16,
        (Some("s32"), true, false) => Sum::S32,
        (Some("s32"), true, true) => Sum::S32Saturated,
        _ => return Err(form.unsupported()),
    };
    if d_type != c_type || bits != right_bits || (left != right && !is_integer) {
        return Err(form.unsupported());
    }
    let [d, a, b, c] = form.operands()?;
    let deep = depth * bits / 128;
    let sums = if sum == Sum::F16 { rows / 8 } else { rows / 4 };
    let site = MatrixSite {
        a: sources(cx, a, rows / 8 * deep)?,
        b: sources(cx, b, deep)?,
        c: sources(cx, c, sums)?,
        d: destinations(cx, d, sums)?,
        rows,
        depth,
        factors: [left, right],
        sum,
        transposed: false,
    };
    let members = cx.constant(u64::from(u32::MAX), Class::Word)?;
    let index = add(cx, site)?;
    cx.push(Op {
        d: members,
        imm: u64::from(index),
        ..cx.op(Action::Converge(matrix::multiply))
    })
}

/// `ldmatrix`
pub(super) fn load(cx: &mut Lowering<'_, '_>, form: Form<'_>) -> Result {
    move_rows(cx, form, |cx, form, count| {
        let [registers, address] = form.operands()?;
        Ok((destinations(cx, registers, count)?, address))
    })
}

/// `stmatrix`
pub(super) fn store(cx: &mut Lowering<'_, '_>, form: Form<'_>) -> Result {
    move_rows(cx, form, |cx, form, count| {
        let [address, registers] = form.operands()?;
        Ok((sources(cx, registers, count)?, address))
    })
}

/// Resolves the operands of a move of so many matrices: registers, and the address.
type Resolve<'k, 'a, 'f> =
    fn(&mut Lowering<'k, 'a>, &Form<'f>, usize) -> Result<([Slot; 4], &'f Operand)>;

fn move_rows<'k, 'a, 'f>(
    cx: &mut Lowering<'k, 'a>,
    mut form: Form<'f>,
    resolve: Resolve<'k, 'a, 'f>,
) -> Result {
    for flag in ["sync", "aligned", "m8n8", "b16"] {
        if !form.flag(flag) {
            return Err(form.unsupported());
        }
    }
    let count = match form.one_of(&["x1", "x2", "x4"]) {
        Some("x1") => 1,
        Some("x2") => 2,
        Some(_) => 4,
        None => return Err(form.unsupported()),
    };
    let transposed = form.flag("trans");
    let space = space_of(&mut form);
    let (d, address) = resolve(cx, &form, count)?;
    let Address::Memory(memory) = cx.address(address, space)? else {
        return Err(form.refuse("needs an address in shared memory"));
    };
    let site = MatrixSite {
        d,
        a: [Slot::default(); 4],
        b: [Slot::default(); 2],
        c: [Slot::default(); 4],
        rows: count,
        depth: 0,
        factors: [Element::F16; 2],
        sum: Sum::F16,
        transposed,
    };
    let execute: Exec = match form.instruction.opcode.as_str() {
        "ldmatrix" => matrix::load,
        _ => matrix::store,
    };
    let members = cx.constant(u64::from(u32::MAX), Class::Word)?;
    let index = add(cx, site)?;
    cx.push(Op {
        a: memory.slot,
        b: Slot(index),
        c: address_kind(memory.space, memory.word),
        d: members,
        imm: memory.offset.cast_unsigned(),
        ..cx.op(Action::Converge(execute))
    })
}

/// `movmatrix`
pub(super) fn transpose(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    for flag in ["sync", "aligned", "m8n8", "trans", "b16"] {
        if !form.flag(flag) {
            return Err(form.unsupported());
        }
    }
    let [d, a] = form.operands()?;
    let a = cx.source(a, T::B32)?;
    let dst = cx.destination(d, T::B32)?;
    let members = cx.constant(u64::from(u32::MAX), Class::Word)?;
    cx.push(Op {
        dst,
        a,
        d: members,
        ..cx.op(Action::Converge(matrix::transpose))
    })
}

fn add(cx: &mut Lowering<'_, '_>, site: MatrixSite) -> Result<u32> {
    cx.program.take(1, cx.line)?;
    cx.program.matrices.push(site);
    // There are no more than operations, whose number is limited.
    Ok((cx.program.matrices.len() - 1) as u32)
}

/// The registers of an operand, which must be `count`.
fn elements<'o>(
    cx: &Lowering<'_, '_>,
    operand: &'o Operand,
    count: usize,
) -> Result<&'o [Operand]> {
    let elements = match operand {
        Operand::Vector(elements) => elements.as_slice(),
        single => std::slice::from_ref(single),
    };
    if elements.len() != count {
        let given = elements.len();
        return Err(cx.refuse(format!("{given} registers are given where {count} belong")));
    }
    Ok(elements)
}

fn sources<const N: usize>(
    cx: &mut Lowering<'_, '_>,
    operand: &Operand,
    count: usize,
) -> Result<[Slot; N]> {
    let mut slots = [Slot::default(); N];
    for (slot, element) in slots.iter_mut().zip(elements(cx, operand, count)?) {
        *slot = cx.source(element, T::B32)?;
    }
    Ok(slots)
}

fn destinations(cx: &mut Lowering<'_, '_>, operand: &Operand, count: usize) -> Result<[Slot; 4]> {
    let mut slots = [Slot::default(); 4];
    for (slot, element) in slots.iter_mut().zip(elements(cx, operand, count)?) {
        *slot = cx.destination(element, T::B32)?;
    }
    Ok(slots)
}
