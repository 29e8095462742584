//! Loads from surfaces and stores to them (PTX ISA, "Surface Instructions").
//!
//! Guests and other kernels may access the elements meanwhile: every access is volatile.

use super::Context;
use super::access::{Access, global_address, lanes};
use super::fault::{AccessKind, Trouble};
use super::system::doubles;
use super::texture::{absent, lookup};
use crate::program::{Op, Outside, Step, SurfaceSite};
use crate::registers::WARP;
use crate::texture::{Image, Lookup};

/// `suld`: number `imm` of the program's accesses to surfaces.
pub(crate) unsafe fn load(context: &mut Context<'_>, op: &Op) -> Step {
    let mut results = [[0; 4]; WARP];
    let step = access(context, op, AccessKind::Load, |_, site, lane, host| {
        if let Some(host) = host {
            for index in 0..site.count {
                let at = host + (index * site.bytes) as u64;
                // SAFETY: `access` has checked range and rights.
                results[lane][index & 3] = unsafe { load_value(at, site.bytes) };
            }
        }
    });
    let Some(site) = context.program.surfaces.get(op.imm as usize) else {
        return Step::Fault;
    };
    if step == Step::Fault {
        return step;
    }
    for (index, slot) in site.values.into_iter().enumerate().take(site.count) {
        for lane in lanes(context.mask) {
            let value = results[lane][index];
            // SAFETY: lowering gives values of 8 bytes a double register in the bound frame, and
            // others a word; there are 32 lanes.
            unsafe {
                match site.bytes {
                    8 => *context.slot::<u64>(slot).add(lane) = value,
                    _ => *context.slot::<u32>(slot).add(lane) = value as u32,
                }
            }
        }
    }
    Step::Next
}

/// `sust`: number `imm` of the program's accesses to surfaces.
pub(crate) unsafe fn store(context: &mut Context<'_>, op: &Op) -> Step {
    access(
        context,
        op,
        AccessKind::Store,
        |context, site, lane, host| {
            let Some(host) = host else {
                return;
            };
            for (index, slot) in site.values.into_iter().enumerate().take(site.count) {
                let at = host + (index * site.bytes) as u64;
                // SAFETY: as in `load`; and `access` has checked range and rights.
                unsafe {
                    let value = match site.bytes {
                        8 => *context.slot::<u64>(slot).add(lane),
                        _ => u64::from(*context.slot::<u32>(slot).add(lane)),
                    };
                    store_value(at, site.bytes, value);
                }
            }
        },
    )
}

/// Calls `each` with the host address of what each lane accesses; `None` is a place outside that
/// reads as zeros.
fn access(
    context: &mut Context<'_>,
    op: &Op,
    kind: AccessKind,
    mut each: impl FnMut(&Context<'_>, &SurfaceSite, usize, Option<u64>),
) -> Step {
    let Some(site) = context.program.surfaces.get(op.imm as usize) else {
        return Step::Fault;
    };
    let objects = doubles(context, site.place.object);
    for lane in lanes(context.mask) {
        match reach(context, site, (lane, objects[lane]), kind) {
            Ok(host) => each(context, site, lane, host),
            Err(trouble) => {
                context.trouble = Some(trouble);
                return Step::Fault;
            }
        }
    }
    Step::Next
}

/// Host address of what a lane accesses.
fn reach(
    context: &mut Context<'_>,
    site: &SurfaceSite,
    (lane, object): (usize, u64),
    kind: AccessKind,
) -> Result<Option<u64>, Trouble> {
    let image = surface(context, object, site).map_err(|text| Trouble::Texture {
        lane: lane as u32,
        text,
    })?;
    let bytes = (site.count * site.bytes) as u64;
    let lookup = lookup(context, &site.place, lane, u32::cast_signed);
    let place = place(image, &lookup, bytes, site.outside);
    let Some([byte, row, slice]) = place.map_err(|refusal| refusal.of(lane, kind, bytes))? else {
        return Ok(None);
    };
    let address = image.byte_address(byte, row, slice);
    global_address(context, (lane, address), Access { bytes, kind }).map(Some)
}

/// The image of the surface with a number, which the instruction can access.
fn surface<'l>(
    context: &Context<'l>,
    object: u64,
    site: &SurfaceSite,
) -> Result<&'l Image, String> {
    let entry = context.textures.get(object).ok_or_else(|| absent(object))?;
    if entry.sampled.is_some() {
        return Err(format!("object {object:#x} is a texture, not a surface"));
    }
    entry.image.check_surface(site.place.geometry)?;
    Ok(&entry.image)
}

/// Why there is nothing to access at a place.
#[derive(Debug, PartialEq)]
struct Refusal {
    is_aligned: bool,
    text: String,
}

impl Refusal {
    /// The trouble of a lane that accesses `bytes` bytes.
    fn of(self, lane: usize, kind: AccessKind, bytes: u64) -> Trouble {
        Trouble::Surface {
            lane: lane as u32,
            is_aligned: self.is_aligned,
            text: format!("{} of {bytes} bytes {}", kind.text(), self.text),
        }
    }
}

/// Byte of the row, row and slice at which `bytes` bytes are accessed; `None` if they are outside,
/// where zeros are.
fn place(
    image: &Image,
    lookup: &Lookup<i32>,
    bytes: u64,
    outside: Outside,
) -> Result<Option<[u64; 3]>, Refusal> {
    let [byte, y, z] = lookup.coordinates;
    let geometry = lookup.geometry;
    let described = || {
        let layer = match geometry.has_layer() {
            true => format!(", layer {}", lookup.layer),
            false => String::new(),
        };
        format!("at byte {byte} of row {y}, slice {z}{layer} of a surface")
    };
    if !i64::from(byte).rem_euclid(bytes.cast_signed()).eq(&0) {
        return Err(Refusal {
            is_aligned: false,
            text: format!("{}: not aligned", described()),
        });
    }
    let row_bytes = image.size[0] * u64::from(image.element.bytes());
    let slice = match geometry.has_layer() {
        true => i64::from(lookup.layer),
        false => z.into(),
    };
    // Accesses that fit a row, rows, and slices.
    let sizes = [row_bytes / bytes, image.size[1], image.size[2]];
    let wanted = [i64::from(byte) / bytes.cast_signed(), y.into(), slice];
    let inside = |(wanted, size): (i64, u64)| u64::try_from(wanted).is_ok_and(|at| at < size);
    let is_inside = wanted.into_iter().zip(sizes).all(inside);
    if !is_inside && outside == Outside::Zero {
        return Ok(None);
    }
    if sizes[0] == 0 || (!is_inside && outside == Outside::Trap) {
        let [width, rows, slices] = [row_bytes, image.size[1], image.size[2]];
        let all = format!("{width} bytes in a row, {rows} rows and {slices} slices or layers");
        return Err(Refusal {
            is_aligned: true,
            text: format!("{}, which has {all}", described()),
        });
    }
    let mut place = [0; 3];
    for (index, (wanted, size)) in wanted.into_iter().zip(sizes).enumerate() {
        place[index] = u64::try_from(wanted).unwrap_or(0).min(size - 1);
    }
    place[0] *= bytes;
    Ok(Some(place))
}

/// # Safety
/// `bytes` bytes can be loaded from the address.
unsafe fn load_value(at: u64, bytes: usize) -> u64 {
    // SAFETY: by this function's contract; each load is aligned.
    unsafe {
        match bytes {
            8 if at.is_multiple_of(8) => (at as *const u64).read_volatile(),
            4 if at.is_multiple_of(4) => u64::from((at as *const u32).read_volatile()),
            2 if at.is_multiple_of(2) => u64::from((at as *const u16).read_volatile()),
            // Rows of elements that are smaller than the access need not begin at its multiples.
            _ => (0..bytes as u64).fold(0, |value, index| {
                let byte = ((at + index) as *const u8).read_volatile();
                value | u64::from(byte) << (8 * index)
            }),
        }
    }
}

/// # Safety
/// `bytes` bytes can be stored at the address.
unsafe fn store_value(at: u64, bytes: usize, value: u64) {
    // SAFETY: by this function's contract; each store is aligned.
    unsafe {
        match bytes {
            8 if at.is_multiple_of(8) => (at as *mut u64).write_volatile(value),
            4 if at.is_multiple_of(4) => (at as *mut u32).write_volatile(value as u32),
            2 if at.is_multiple_of(2) => (at as *mut u16).write_volatile(value as u16),
            _ => {
                for index in 0..bytes as u64 {
                    ((at + index) as *mut u8).write_volatile((value >> (8 * index)) as u8);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_mediator::backend::{Element, ElementFormat};

    use super::*;
    use crate::texture::{Geometry, Kind};

    /// 37 elements of 2 bytes in a row, 7 rows, 5 slices.
    fn image(kind: Kind) -> Image {
        Image {
            address: 0,
            kind,
            size: [37, 7, 5],
            pitch: 74,
            element: Element {
                format: ElementFormat::Unsigned8,
                channels: 2,
            },
        }
    }

    fn at(geometry: Geometry, layer: u32, coordinates: [i32; 3]) -> Lookup<i32> {
        Lookup {
            geometry,
            layer,
            coordinates,
        }
    }

    #[test]
    fn places_outside_are_moved_inside_or_are_zeros() {
        let (flat, volume) = (image(Kind::Flat), image(Kind::Volume));
        let layered = Geometry::LayeredTwo;
        // As an H200 does it.
        for (image, lookup, clamped) in [
            (&flat, at(layered, 0, [72, 0, 0]), [64, 0, 0]),
            (&flat, at(layered, 0, [80, 3, 0]), [64, 3, 0]),
            (&flat, at(layered, 2, [-8, -1, 0]), [0, 0, 2]),
            (&flat, at(layered, u32::MAX, [8, 9, 0]), [8, 6, 4]),
            (&volume, at(Geometry::Three, 0, [8, 1, 9]), [8, 1, 4]),
            (&volume, at(Geometry::Three, 0, [8, 1, -9]), [8, 1, 0]),
        ] {
            assert_eq!(place(image, &lookup, 8, Outside::Clamp), Ok(Some(clamped)));
            assert_eq!(place(image, &lookup, 8, Outside::Zero), Ok(None));
            let refusal = place(image, &lookup, 8, Outside::Trap).unwrap_err();
            assert!(refusal.is_aligned && refusal.text.contains("74 bytes in a row"));
        }
        for outside in [Outside::Trap, Outside::Clamp, Outside::Zero] {
            let inside = place(&flat, &at(layered, 4, [64, 6, 0]), 8, outside);
            assert_eq!(inside, Ok(Some([64, 6, 4])));
        }
    }

    #[test]
    fn crooked_accesses_are_refused_in_every_mode() {
        for outside in [Outside::Trap, Outside::Clamp, Outside::Zero] {
            for byte in [1, 4, -4, i32::MAX] {
                let lookup = at(Geometry::Two, 0, [byte, 0, 0]);
                let refusal = place(&image(Kind::Flat), &lookup, 8, outside).unwrap_err();
                assert!(!refusal.is_aligned, "{byte}");
            }
        }
        // A row that is shorter than the access has no place for it.
        let narrow = Image {
            size: [1, 7, 5],
            ..image(Kind::Flat)
        };
        let lookup = at(Geometry::Two, 0, [0, 0, 0]);
        assert!(place(&narrow, &lookup, 8, Outside::Clamp).is_err());
        assert_eq!(place(&narrow, &lookup, 8, Outside::Zero), Ok(None));
    }
}
