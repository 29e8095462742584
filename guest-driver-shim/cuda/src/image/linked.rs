//! Images of several inputs, which the device links when it loads them.
//!
//! All numbers are little-endian: 8 bytes [`MAGIC`], a 32-bit number of inputs, the 32-bit word of
//! [`Compilation`], then for each input a 64-bit length in bytes and the bytes, with zeros up to a
//! multiple of 8.

use super::{BYTES_MAX, Image, Part, Source, Target, elf, machine, text, u32_at, u64_at};
use crate::error::{Answer, Code};

/// How such an image begins.
pub(super) const MAGIC: &[u8] = b"CWLINK01";
/// Inputs of an image, at most.
pub(super) const INPUTS_MAX: usize = 256;
/// Offset of the first input.
const FIRST: u64 = 16;

/// How the device is to compile an image: bits 0 to 15 hold the most registers that a thread may
/// have, bits 16 to 18 the level of optimisation plus 1. A zero leaves the choice to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compilation(u32);

impl Compilation {
    /// The highest level of optimisation.
    const LEVEL_MAX: u32 = 4;

    /// Returns this with the most registers that a thread may have.
    pub(crate) fn registers(self, count: u32) -> Self {
        Self(self.0 & !0xffff | count.min(0xffff))
    }

    /// Returns this with a level of optimisation.
    pub(crate) fn optimization(self, level: u32) -> Self {
        Self(self.0 & 0xffff | (level.min(Self::LEVEL_MAX) + 1) << 16)
    }

    fn of_word(word: u32) -> Option<Self> {
        (word >> 16 <= Self::LEVEL_MAX + 1).then_some(Self(word))
    }
}

/// Returns an image of `inputs`.
pub(super) fn pack(inputs: &[impl AsRef<[u8]>], how: Compilation) -> Vec<u8> {
    let mut image = MAGIC.to_vec();
    image.extend_from_slice(&(inputs.len() as u32).to_le_bytes());
    image.extend_from_slice(&how.0.to_le_bytes());
    for input in inputs {
        let input = input.as_ref();
        image.extend_from_slice(&(input.len() as u64).to_le_bytes());
        image.extend_from_slice(input);
        image.resize(image.len().next_multiple_of(8), 0);
    }
    image
}

/// Returns the image that `source` holds.
pub(super) fn inputs(source: &impl Source, target: &Target) -> Answer<Image> {
    let (contents, how) = contents(source).ok_or(Code::INVALID_IMAGE)?;
    let image = |content: Vec<u8>| match content.starts_with(elf::MAGIC) {
        true => machine(&&content[..], target),
        false => text(content),
    };
    let images = contents
        .into_iter()
        .map(image)
        .collect::<Answer<Vec<_>>>()?;
    Image::linked(images, how)
}

fn contents(source: &impl Source) -> Option<(Vec<Vec<u8>>, Compilation)> {
    let (count, word) = (u32_at(source, 8)? as usize, u32_at(source, 12)?);
    let how = Compilation::of_word(word)?;
    if !(1..=INPUTS_MAX).contains(&count) {
        return None;
    }
    let mut at = FIRST;
    let mut contents = Vec::new();
    for _ in 0..count {
        let bytes = u64_at(source, at)?;
        if bytes > BYTES_MAX {
            return None;
        }
        let padded = bytes.next_multiple_of(8);
        let mut content = Part(source, at + 8).read(0, padded)?;
        content.truncate(bytes as usize);
        contents.push(content);
        at += 8 + padded;
    }
    Some((contents, how))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::of;
    use crate::image::tests::{GPU, PTX, SOFTWARE};

    #[test]
    fn what_is_packed_is_found_again() {
        let (first, second) = (PTX.to_owned(), format!("{PTX}// 2"));
        let how = Compilation::default().optimization(9).registers(57);
        let image = Image::Linked(vec![Image::Text(first), Image::Text(second)], how);
        let bytes = image.bytes();
        assert_eq!((bytes.len() % 8, &bytes[12..16]), (0, &[57, 0, 5, 0][..]));
        assert_eq!(of(&&bytes[..], &SOFTWARE), Ok(image.clone()));
        assert_eq!(image.clone().into_result(), &bytes[..]);
    }

    #[test]
    fn damaged_images_are_refused() {
        let good = pack(&[PTX, PTX], Compilation::default());
        for end in MAGIC.len()..good.len() {
            assert_eq!(of(&&good[..end], &GPU), Err(Code::INVALID_IMAGE), "{end}");
        }
        for (at, value) in [(8, 0), (8, 0xff), (9, 1), (14, 6), (15, 1), (23, 1)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(of(&&bad[..], &GPU), Err(Code::INVALID_IMAGE), "{at}");
        }
    }
}
