//! Loads and stores (PTX ISA, "ld", "st").

use std::borrow::Cow;

use super::addresses::{Address, is_hint, space_of};
use super::element::copy_function;
use super::form::Form;
use super::frame::{Class, quad_half};
use super::lowering::Lowering;
use super::refusal::Result;
use super::whole::is_whole;
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;
use ScalarType as T;

/// The operands of a vector access, or the one operand of a scalar access.
pub(super) fn elements<'o>(
    cx: &mut Lowering<'_, '_>,
    operand: &'o Operand,
    count: usize,
) -> Result<Cow<'o, [Operand]>> {
    let elements: Cow<'o, [Operand]> = match operand {
        Operand::Vector(elements) => elements.as_slice().into(),
        Operand::Name(name) if count > 1 && cx.scopes.vector_elements(name).is_some() => {
            let element = |suffix| Operand::Name(format!("{name}.{suffix}"));
            ["x", "y", "z", "w"][..count.min(4)]
                .iter()
                .map(element)
                .collect()
        }
        single => std::slice::from_ref(single).into(),
    };
    if elements.len() != count {
        let reason = format!("{} registers are given for {count} values", elements.len());
        return Err(cx.refuse(reason));
    }
    Ok(elements)
}

/// What `ld` and `st` have in common.
struct Shape {
    space: u8,
    count: usize,
    scalar: ScalarType,
    cached: bool,
    /// Whether it is done at once.
    is_whole: bool,
}

fn shape(form: &mut Form<'_>) -> Result<Shape> {
    let space = space_of(form);
    let cached = form
        .instruction
        .modifiers
        .iter()
        .any(|m| m == "L2::cache_hint");
    form.discard(is_hint);
    let count: usize = match form.one_of(&["v2", "v4", "v8"]) {
        None => 1,
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
    };
    let scalar = form.scalar()?;
    form.done()?;
    if scalar == T::Pred {
        return Err(form.refuse("loads or stores a predicate, which cannot be in memory"));
    }
    if count as u32 * scalar.bytes() > 32 {
        return Err(form.refuse("loads or stores more than 32 bytes"));
    }
    Ok(Shape {
        space,
        count,
        scalar,
        cached,
        is_whole: is_whole(&form.instruction.modifiers, count, scalar),
    })
}

/// The two operands of an access; the cache policy that may follow means nothing here.
fn pair<'a>(form: &Form<'a>, shape: &Shape) -> Result<(&'a Operand, &'a Operand)> {
    match form.instruction.operands.as_slice() {
        [first, second] => Ok((first, second)),
        [first, second, _] if shape.cached => Ok((first, second)),
        other => Err(form.refuse(format!("takes 2 operands, but has {}", other.len()))),
    }
}

/// `ld`, `ldu`
pub(super) fn load(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let shape = shape(&mut form)?;
    let (destinations, address) = pair(&form, &shape)?;
    let destinations = elements(cx, destinations, shape.count)?;
    let mut address = cx.address(address, shape.space)?;
    if shape.is_whole && cx.load_whole(address, shape.scalar, &destinations)? {
        return Ok(());
    }
    let bytes = shape.scalar.bytes();
    let mut align = bytes * shape.count as u32;
    if let Address::Memory(memory) = &mut address
        && shape.count > 1
    {
        memory.slot = kept(cx, memory.slot, memory.word)?;
    }
    for (index, destination) in (0..).zip(destinations.iter()) {
        let at = address.further(index * bytes);
        load_one(cx, at, shape.scalar, destination, align)?;
        // The first element stands for the alignment of the whole.
        align = bytes;
    }
    Ok(())
}

/// A copy of an address register: one of the destinations of a vector load may be that very
/// register.
fn kept(cx: &mut Lowering<'_, '_>, slot: Slot, word: bool) -> Result<Slot> {
    if slot.bank() != 0 {
        return Ok(slot);
    }
    let class = if word { Class::Word } else { Class::Double };
    let copy = cx.scratch(class)?;
    cx.compute(copy_function(cx.program.isa, class), copy, &[slot])?;
    Ok(copy)
}

fn load_one(
    cx: &mut Lowering<'_, '_>,
    address: Address,
    scalar: ScalarType,
    destination: &Operand,
    align: u32,
) -> Result {
    if scalar == T::B128 {
        let dst = cx.destination(destination, scalar)?;
        let double = (T::B64, Class::Double);
        cx.load_element(address, double, quad_half(dst, 0), align)?;
        return cx.load_element(address.further(8), double, quad_half(dst, 1), 8);
    }
    let class = Class::of(scalar);
    let (dst, class) = match cx.any_destination(destination)? {
        Some(register) if register.class == Class::Double => (register.slot, Class::Double),
        Some(register) if register.class == class => (register.slot, class),
        None => (cx.scratch(class)?, class),
        Some(_) => (cx.destination(destination, scalar)?, class),
    };
    cx.load_element(address, (scalar, class), dst, align)
}

/// `st`
pub(super) fn store(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let shape = shape(&mut form)?;
    let (address, sources) = pair(&form, &shape)?;
    let sources = elements(cx, sources, shape.count)?;
    let address = cx.address(address, shape.space)?;
    if shape.is_whole && cx.store_whole(address, shape.scalar, &sources)? {
        return Ok(());
    }
    let bytes = shape.scalar.bytes();
    let mut align = bytes * shape.count as u32;
    for (index, operand) in (0..).zip(sources.iter()) {
        let at = address.further(index * bytes);
        if shape.scalar == T::B128 {
            let source = cx.source(operand, T::B128)?;
            let double = (T::B64, Class::Double);
            cx.store_element(at, double, quad_half(source, 0), align)?;
            cx.store_element(at.further(8), double, quad_half(source, 1), 8)?;
        } else {
            let source = cx.source_relaxed(operand, shape.scalar)?;
            let class = Class::of(shape.scalar);
            cx.store_element(at, (shape.scalar, class), source, align)?;
        }
        align = bytes;
    }
    Ok(())
}

/// `prefetch` and other hints: nothing to do.
pub(super) fn hint(_cx: &mut Lowering<'_, '_>, _form: Form<'_>) -> Result {
    Ok(())
}
