//! Reads of textures, and questions about textures and surfaces (PTX ISA, "Texture Instructions"):
//! by objects whose numbers are in registers.

use super::form::Form;
use super::lowering::Lowering;
use super::memory::elements;
use super::refusal::Result;
use crate::exec::texture;
use crate::program::{Action, Exec, Op, Query, TexturePlace, TextureSite};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;
use crate::texture::Geometry;
use ScalarType as T;

/// `tex`. Textures have no smaller copies of themselves, so the level and the gradients that some
/// forms have mean nothing.
pub(super) fn sample(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let level = form.one_of(&["base", "level", "grad"]);
    let geometry = geometry(&mut form)?;
    require(&mut form, "v4")?;
    let result = form.scalar_of(&[T::U32, T::S32, T::F32])?;
    let coordinate = form.scalar_of(&[T::S32, T::F32])?;
    form.done()?;
    if geometry.is_cube() && coordinate != T::F32 {
        return Err(form.unsupported());
    }
    let more = match level {
        Some("level") => 1,
        Some("grad") => 2,
        _ => 0,
    };
    let [values, place] = first_two(&form, more)?;
    let is_integer = coordinate == T::S32;
    let place = cx.texture_place(&form, place, geometry, coordinate)?;
    let site = TextureSite {
        place,
        is_integer,
        channel: 0,
        values: results(cx, values, result)?,
    };
    read(cx, site, texture::sample)
}

/// `tld4`
pub(super) fn gather(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let channel = form.find(|word| ["r", "g", "b", "a"].iter().position(|name| *name == word));
    let channel = channel.ok_or_else(|| form.unsupported())?;
    let geometry = geometry(&mut form)?;
    require(&mut form, "v4")?;
    let result = form.scalar_of(&[T::U32, T::S32, T::F32])?;
    form.scalar_of(&[T::F32])?;
    form.done()?;
    if matches!(
        geometry,
        Geometry::One | Geometry::LayeredOne | Geometry::Three
    ) {
        return Err(form.unsupported());
    }
    let [values, place] = first_two(&form, 0)?;
    let place = cx.texture_place(&form, place, geometry, T::F32)?;
    let site = TextureSite {
        place,
        is_integer: false,
        channel,
        values: results(cx, values, result)?,
    };
    read(cx, site, texture::gather)
}

/// `txq`, `suq`
pub(super) fn query(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let query = form.find(Query::number);
    let query = query.ok_or_else(|| form.unsupported())?;
    form.scalar_of(&[T::B32])?;
    let [dst, object] = form.operands()?;
    let a = cx.texture_object(&form, object)?;
    let dst = cx.destination(dst, T::B32)?;
    cx.compute_with(texture::query, dst, &[a], query)
}

/// Takes the modifier that names the geometry.
pub(super) fn geometry(form: &mut Form<'_>) -> Result<Geometry> {
    let found = form.find(|word| {
        Some(match word {
            "1d" => Geometry::One,
            "2d" => Geometry::Two,
            "3d" => Geometry::Three,
            "a1d" => Geometry::LayeredOne,
            "a2d" => Geometry::LayeredTwo,
            "cube" => Geometry::Cube,
            "acube" => Geometry::LayeredCube,
            _ => return None,
        })
    });
    found.ok_or_else(|| form.unsupported())
}

fn require(form: &mut Form<'_>, modifier: &str) -> Result {
    match form.flag(modifier) {
        true => Ok(()),
        false => Err(form.unsupported()),
    }
}

/// The first two operands, behind which `more` follow. Offsets and depths would be more operands.
fn first_two<'a>(form: &Form<'a>, more: usize) -> Result<[&'a Operand; 2]> {
    match form.instruction.operands.as_slice() {
        [first, second, rest @ ..] if rest.len() == more => Ok([first, second]),
        operands => {
            let (wanted, has) = (2 + more, operands.len());
            let reason = format!(
                "takes {wanted} operands on the software back end, which has neither offsets nor \
                 depth textures, but has {has}"
            );
            Err(form.refuse(reason))
        }
    }
}

/// The four registers of a result.
fn results(cx: &mut Lowering<'_, '_>, values: &Operand, scalar: ScalarType) -> Result<[Slot; 4]> {
    let mut slots = [Slot::default(); 4];
    for (slot, element) in slots.iter_mut().zip(elements(cx, values, 4)?.iter()) {
        *slot = cx.destination(element, scalar)?;
    }
    Ok(slots)
}

fn read(cx: &mut Lowering<'_, '_>, site: TextureSite, execute: Exec) -> Result {
    cx.program.take(1, cx.line)?;
    cx.program.textures.push(site);
    let index = cx.program.textures.len() - 1;
    cx.push(Op {
        imm: index as u64,
        ..cx.op(Action::Lanes(execute))
    })
}

impl Lowering<'_, '_> {
    /// Returns where an operand such as `[object, {x, y}]` accesses a texture or a surface.
    pub(super) fn texture_place(
        &mut self,
        form: &Form<'_>,
        operand: &Operand,
        geometry: Geometry,
        coordinate: ScalarType,
    ) -> Result<TexturePlace> {
        let (object, coordinates) = match operand {
            Operand::List(items) => match items.as_slice() {
                [object, coordinates] => (object, coordinates),
                [_, _, _] => {
                    return Err(form.refuse(
                        "names a separate sampler, which the software back end does not have",
                    ));
                }
                _ => return Err(form.refuse("needs an operand such as `[object, {x, y}]`")),
            },
            _ => return Err(form.refuse("needs an operand such as `[object, {x, y}]`")),
        };
        let object = self.texture_object(form, object)?;
        let layers = usize::from(geometry.has_layer());
        let wanted = layers + geometry.dimensions();
        // Three coordinates are padded with a fourth one, which means nothing.
        let given = match coordinates {
            Operand::Vector(elements) if wanted == 3 && elements.len() == 4 => 4,
            _ => wanted,
        };
        let coordinates = elements(self, coordinates, given)?;
        let mut place = TexturePlace {
            object,
            geometry,
            layer: Slot::default(),
            coordinates: [Slot::default(); 3],
        };
        if layers == 1 {
            place.layer = self.source(&coordinates[0], T::U32)?;
        }
        let each = place.coordinates.iter_mut().zip(&coordinates[layers..]);
        for (slot, element) in each {
            *slot = self.source(element, coordinate)?;
        }
        Ok(place)
    }

    /// Returns the register of the object that `[object]` names.
    fn texture_object(&mut self, form: &Form<'_>, operand: &Operand) -> Result<Slot> {
        if let Operand::Memory {
            base: Some(name),
            offset: 0,
        } = operand
            && self.register(name)?.is_some()
        {
            return self.source(&Operand::Name(name.clone()), T::U64);
        }
        Err(form.refuse(
            "needs a register with the number of a texture or surface object; references by name \
             are not supported by the software back end",
        ))
    }
}
