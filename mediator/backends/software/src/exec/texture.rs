//! Reads of textures (PTX ISA, "Texture Instructions").
//!
//! Guests and other kernels may write the elements meanwhile: each channel is one volatile load.

use causeway_mediator::backend::{Element, ElementFormat};

use super::Context;
use super::access::{Access, global_address, lanes};
use super::fault::{AccessKind, NOT_ALIGNED, Trouble};
use super::system::doubles;
use crate::program::{Op, Query, Step, TexturePlace, TextureSite};
use crate::registers::WARP;
use crate::texture::{
    Entry, FRACTION_ONE, Image, Kind, Lookup, Place, Sampled, corners, element, taps,
};

/// The four words that a lane gets, or why it gets none.
type Read = Result<[u32; 4], Trouble>;

/// `tex`: number `imm` of the program's reads of textures.
pub(crate) unsafe fn sample(context: &mut Context<'_>, op: &Op) -> Step {
    read(context, op, |context, texture, site, lane| {
        if site.is_integer {
            let lookup = lookup(context, &site.place, lane, u32::cast_signed);
            let place = element(texture.image, &lookup);
            return match place {
                Some(_) => texture.element(context, lane, place),
                None => Ok([0; 4]),
            };
        }
        let lookup = lookup(context, &site.place, lane, f32::from_bits);
        let taps = taps(texture.image, texture.sampled, &lookup);
        match taps.all() {
            [tap] => texture.element(context, lane, tap.place),
            all => {
                let format = &texture.sampled.format;
                let mut sums = [0.0; 4];
                for tap in all.iter().filter(|tap| tap.weight != 0) {
                    let element = texture.element(context, lane, tap.place)?;
                    for (sum, bits) in sums.iter_mut().zip(element) {
                        *sum += format.number(bits) * f64::from(tap.weight);
                    }
                }
                Ok(sums.map(|sum| format.bits(sum / f64::from(FRACTION_ONE))))
            }
        }
    })
}

/// `tld4`: number `imm` of the program's reads of textures.
pub(crate) unsafe fn gather(context: &mut Context<'_>, op: &Op) -> Step {
    read(context, op, |context, texture, site, lane| {
        let lookup = lookup(context, &site.place, lane, f32::from_bits);
        let mut gathered = [0; 4];
        let places = corners(texture.image, texture.sampled, &lookup);
        for (to, place) in gathered.iter_mut().zip(places) {
            *to = texture.element(context, lane, place)?[site.channel & 3];
        }
        Ok(gathered)
    })
}

/// `txq` and `suq`: the word `dst` gets what `imm` asks for of the object in the double `a`.
pub(crate) unsafe fn query(context: &mut Context<'_>, op: &Op) -> Step {
    let objects = doubles(context, op.a);
    let query = Query::from_number(op.imm);
    let mut answers = [0; WARP];
    for lane in lanes(context.mask) {
        let Some(entry) = context.textures.get(objects[lane]) else {
            context.trouble = Some(unknown(objects[lane], lane));
            return Step::Fault;
        };
        answers[lane] = query.map_or(0, |query| query.answer(entry));
    }
    context.set_words(op.dst, &answers);
    Step::Next
}

/// A texture, with how it is sampled.
#[derive(Clone, Copy)]
struct Texture<'l> {
    image: &'l Image,
    sampled: &'l Sampled,
}

impl<'l> Texture<'l> {
    /// The texture with a number, which the instruction can read.
    fn find(context: &Context<'l>, object: u64, site: &TextureSite) -> Result<Self, String> {
        let entry = context.textures.get(object).ok_or_else(|| absent(object))?;
        let Entry { image, sampled } = entry;
        let sampled = sampled
            .as_ref()
            .ok_or_else(|| format!("object {object:#x} is a surface, not a texture"))?;
        image.check_sampled(site.place.geometry, site.is_integer)?;
        Ok(Self { image, sampled })
    }

    /// What a lane gets for the element at a place, or for the border.
    fn element(&self, context: &mut Context<'_>, lane: usize, place: Place) -> Read {
        let Some(place) = place else {
            return Ok(self.sampled.border);
        };
        let address = self.image.element_address(place);
        let channels = load(context, (lane, address), self.image.element)?;
        Ok(self.sampled.format.read(channels))
    }
}

/// Reads a texture lane by lane, and then sets the result.
fn read(
    context: &mut Context<'_>,
    op: &Op,
    read_lane: impl Fn(&mut Context<'_>, Texture<'_>, &TextureSite, usize) -> Read,
) -> Step {
    let Some(site) = context.program.textures.get(op.imm as usize) else {
        return Step::Fault;
    };
    let objects = doubles(context, site.place.object);
    let mut last = None;
    let mut results = [[0; WARP]; 4];
    for lane in lanes(context.mask) {
        let object = objects[lane];
        let texture = match last {
            Some((number, texture)) if number == object => Ok(texture),
            _ => Texture::find(context, object, site).map_err(|text| Trouble::Texture {
                lane: lane as u32,
                text,
            }),
        };
        let read = texture.and_then(|texture| {
            last = Some((object, texture));
            read_lane(context, texture, site, lane)
        });
        match read {
            Ok(read) => {
                for (result, word) in results.iter_mut().zip(read) {
                    result[lane] = word;
                }
            }
            Err(trouble) => {
                context.trouble = Some(trouble);
                return Step::Fault;
            }
        }
    }
    for (slot, words) in site.values.iter().zip(&results) {
        context.set_words(*slot, words);
    }
    Step::Next
}

/// What a lane looks up: `decode` makes a coordinate of a word.
pub(super) fn lookup<T: Copy>(
    context: &Context<'_>,
    place: &TexturePlace,
    lane: usize,
    decode: impl Fn(u32) -> T,
) -> Lookup<T> {
    let geometry = place.geometry;
    let mut words = [0; 3];
    let slots = place.coordinates.iter().take(geometry.dimensions());
    for (word, slot) in words.iter_mut().zip(slots) {
        *word = context.word(*slot, lane as u32);
    }
    let layer = match geometry.has_layer() {
        true => context.word(place.layer, lane as u32),
        false => 0,
    };
    Lookup {
        geometry,
        layer,
        coordinates: words.map(decode),
    }
}

/// Loads the channels of an element.
fn load(context: &mut Context<'_>, (lane, address): (usize, u64), element: Element) -> Read {
    let bytes = element.format.bytes();
    let access = Access {
        bytes: element.bytes().into(),
        kind: AccessKind::Load,
    };
    if !address.is_multiple_of(bytes.into()) {
        return Err(Trouble::Access {
            lane: lane as u32,
            address,
            bytes: access.bytes,
            kind: access.kind,
            reason: NOT_ALIGNED,
        });
    }
    let host = global_address(context, (lane, address), access)?;
    let mut channels = [0; 4];
    for (index, channel) in (0..).zip(&mut channels).take(element.channels as usize) {
        let at = host + u64::from(bytes * index);
        // SAFETY: range, alignment and rights were checked: all channels lie in the mapping.
        *channel = unsafe {
            match bytes {
                1 => u32::from((at as *const u8).read_volatile()),
                2 => u32::from((at as *const u16).read_volatile()),
                _ => (at as *const u32).read_volatile(),
            }
        };
    }
    Ok(channels)
}

/// What is wrong with a number that is no object.
pub(super) fn absent(object: u64) -> String {
    format!("object {object:#x} is no texture or surface of this address space, or not any more")
}

fn unknown(object: u64, lane: usize) -> Trouble {
    Trouble::Texture {
        lane: lane as u32,
        text: absent(object),
    }
}

impl Query {
    fn answer(self, entry: &Entry) -> u32 {
        let [width, height, slices] = entry.image.size;
        let is_volume = entry.image.kind == Kind::Volume;
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let element = entry.image.element;
        match self {
            Self::Width => number(width),
            Self::Height => number(height),
            Self::Depth => number(if is_volume { slices } else { 1 }),
            Self::Layers => number(if is_volume { 1 } else { slices }),
            Self::ChannelType => channel_type(element.format, entry.sampled.as_ref()),
            // `CL_R`, `CL_RG` and `CL_RGBA` of OpenCL, whose numbers PTX has.
            Self::ChannelOrder => match element.channels {
                1 => 0x10b0,
                2 => 0x10b2,
                _ => 0x10b5,
            },
            Self::IsNormalized => entry
                .sampled
                .is_some_and(|sampled| sampled.is_normalized)
                .into(),
        }
    }
}

/// The type of a channel, as OpenCL numbers it (`CL_SNORM_INT8` and so on).
fn channel_type(format: ElementFormat, sampled: Option<&Sampled>) -> u32 {
    use ElementFormat as F;
    let is_part = sampled.is_some_and(|sampled| sampled.format.reads_parts());
    match (format, is_part) {
        (F::Signed8, true) => 0x10d0,
        (F::Signed16, true) => 0x10d1,
        (F::Unsigned8, true) => 0x10d2,
        (F::Unsigned16, true) => 0x10d3,
        (F::Signed8, false) => 0x10d7,
        (F::Signed16, false) => 0x10d8,
        (F::Signed32, _) => 0x10d9,
        (F::Unsigned8, false) => 0x10da,
        (F::Unsigned16, false) => 0x10db,
        (F::Unsigned32, _) => 0x10dc,
        (F::Half, _) => 0x10dd,
        (F::Float, _) => 0x10de,
    }
}
