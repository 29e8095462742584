//! Loads from surfaces and stores to them (PTX ISA, "Surface Instructions"), without formats.

use super::form::Form;
use super::lowering::Lowering;
use super::memory::elements;
use super::refusal::Result;
use super::texture::geometry;
use crate::exec::surface;
use crate::program::{Action, Exec, Op, Outside, SurfaceSite, TexturePlace};
use crate::ptx::ast::ScalarType;
use crate::registers::Slot;
use crate::texture::Geometry;
use ScalarType as T;

/// What the modifiers of an instruction say.
struct Shape {
    geometry: Geometry,
    count: usize,
    scalar: ScalarType,
    outside: Outside,
}

/// `suld`
pub(super) fn load(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let shape = shape(&mut form)?;
    let [values, place] = form.operands()?;
    let place = cx.texture_place(&form, place, shape.geometry, T::S32)?;
    let mut slots = [Slot::default(); 4];
    for (slot, element) in slots
        .iter_mut()
        .zip(elements(cx, values, shape.count)?.iter())
    {
        *slot = cx.destination(element, shape.scalar)?;
    }
    access(cx, &shape, place, slots, surface::load)
}

/// `sust`
pub(super) fn store(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let shape = shape(&mut form)?;
    let [place, values] = form.operands()?;
    let place = cx.texture_place(&form, place, shape.geometry, T::S32)?;
    let mut slots = [Slot::default(); 4];
    for (slot, element) in slots
        .iter_mut()
        .zip(elements(cx, values, shape.count)?.iter())
    {
        *slot = cx.source(element, shape.scalar)?;
    }
    access(cx, &shape, place, slots, surface::store)
}

fn shape(form: &mut Form<'_>) -> Result<Shape> {
    // Accesses that convert formats have another modifier here.
    if !form.flag("b") {
        return Err(form.unsupported());
    }
    let geometry = geometry(form)?;
    form.discard(|word| matches!(word, "ca" | "cg" | "cs" | "cv" | "wb" | "wt"));
    let count = match form.one_of(&["v2", "v4"]) {
        None => 1,
        Some("v2") => 2,
        Some(_) => 4,
    };
    let scalar = form.scalar_of(&[T::B8, T::B16, T::B32, T::B64])?;
    let outside = match form.one_of(&["trap", "clamp", "zero"]) {
        None | Some("trap") => Outside::Trap,
        Some("clamp") => Outside::Clamp,
        Some(_) => Outside::Zero,
    };
    form.done()?;
    if geometry.is_cube() || count as u32 * scalar.bytes() > 16 {
        return Err(form.unsupported());
    }
    Ok(Shape {
        geometry,
        count,
        scalar,
        outside,
    })
}

fn access(
    cx: &mut Lowering<'_, '_>,
    shape: &Shape,
    place: TexturePlace,
    values: [Slot; 4],
    execute: Exec,
) -> Result {
    cx.program.take(1, cx.line)?;
    cx.program.surfaces.push(SurfaceSite {
        place,
        outside: shape.outside,
        values,
        count: shape.count,
        bytes: shape.scalar.bytes() as usize,
    });
    let index = cx.program.surfaces.len() - 1;
    cx.push(Op {
        imm: index as u64,
        ..cx.op(Action::Lanes(execute))
    })
}
