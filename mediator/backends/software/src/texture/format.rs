//! From an element in memory to what a kernel gets (CUDA C++ Programming Guide, "Texture Memory":
//! read modes; CUDA driver API, `cuTexObjectCreate`: flags).

use causeway_mediator::backend::{Element, ElementFormat as F};
use causeway_protocol::message::texture_flags;

use crate::arith::float16::Half;

/// How the elements of a texture are read. A channel that they do not have is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    element: Element,
    /// Whether numbers of 8 and 16 bits are read as they are, not as parts of the largest one.
    as_integers: bool,
    /// Whether numbers of 8 bits are colours by sRGB.
    is_srgb: bool,
}

impl Format {
    /// Returns how a texture with these `flags`, a bit set of [`texture_flags`], reads elements.
    pub(crate) fn new(element: Element, flags: u32) -> Self {
        Self {
            element,
            as_integers: flags & texture_flags::INTEGERS != 0,
            is_srgb: flags & texture_flags::SRGB != 0,
        }
    }

    /// Returns whether numbers are read as parts of the largest one.
    pub(crate) fn reads_parts(&self) -> bool {
        self.largest().is_some()
    }

    /// Returns the largest number of the format if it is read as a part of that; `None` if it is
    /// read as it is. Numbers of 32 bits always are.
    fn largest(&self) -> Option<f32> {
        match self.element.format {
            _ if self.as_integers => None,
            F::Unsigned8 => Some(255.0),
            F::Unsigned16 => Some(65_535.0),
            F::Signed8 => Some(127.0),
            F::Signed16 => Some(32_767.0),
            F::Unsigned32 | F::Signed32 | F::Half | F::Float => None,
        }
    }

    /// Returns the bits of the four channels that a kernel gets for an element with these channels,
    /// whose bits are in the low part of the words.
    pub(crate) fn read(&self, channels: [u32; 4]) -> [u32; 4] {
        let mut read = [0; 4];
        for index in 0..self.element.channels as usize & 7 {
            if let (Some(to), Some(from)) = (read.get_mut(index), channels.get(index)) {
                *to = self.channel(*from, index);
            }
        }
        read
    }

    fn channel(&self, bits: u32, index: usize) -> u32 {
        if self.is_colour(index) {
            return linear(bits as u8).to_bits();
        }
        let Some(largest) = self.largest() else {
            return match self.element.format {
                F::Half => Half::F16.widen(bits as u16).to_bits(),
                _ => self.whole(bits),
            };
        };
        let number = match self.element.format {
            F::Signed8 => f32::from(bits as i8),
            F::Signed16 => f32::from(bits as i16),
            _ => bits as f32,
        };
        // The lowest number is no further from 0 than the largest.
        (number / largest).max(-1.0).to_bits()
    }

    /// An integer, extended to 32 bits by its own sign.
    fn whole(&self, bits: u32) -> u32 {
        match self.element.format {
            F::Unsigned8 => bits & 0xff,
            F::Unsigned16 => bits & 0xffff,
            F::Signed8 => i32::from(bits as i8).cast_unsigned(),
            F::Signed16 => i32::from(bits as i16).cast_unsigned(),
            F::Unsigned32 | F::Signed32 | F::Half | F::Float => bits,
        }
    }

    /// Whether sRGB counts for a channel. The last one of two and of four is opacity, which is
    /// linear.
    fn is_colour(&self, index: usize) -> bool {
        let is_bytes = self.element.format == F::Unsigned8 && !self.as_integers;
        let colours = [0, 1, 1, 3, 3];
        let count = colours.get(self.element.channels as usize).copied();
        self.is_srgb && is_bytes && index < count.unwrap_or(0)
    }

    /// Returns the bits of the four channels outside, of which a texture has `border`. It is what
    /// an element could hold.
    pub(crate) fn border(&self, border: [f32; 4]) -> [u32; 4] {
        let mut read = [0; 4];
        let channels = read.iter_mut().zip(border);
        for (to, border) in channels.take(self.element.channels as usize) {
            *to = match (self.largest(), self.element.format) {
                (Some(largest), format) => {
                    let is_signed = matches!(format, F::Signed8 | F::Signed16);
                    let lowest = if is_signed { -1.0 } else { 0.0 };
                    // A border that is no number becomes the lowest one.
                    let number = border.max(lowest).min(1.0) * largest;
                    // A half is rounded towards 0.
                    let nearest = (number.abs() - 0.5).ceil().copysign(number);
                    (nearest / largest).to_bits()
                }
                (None, F::Half) => {
                    let nearest = Half::F16.nearest(border);
                    Half::F16.widen(nearest).to_bits()
                }
                (None, _) => self.whole(border.to_bits()),
            };
        }
        read
    }

    /// Returns the number that the bits of a channel stand for.
    pub(crate) fn number(&self, bits: u32) -> f64 {
        match self.element.format {
            F::Unsigned32 => bits.into(),
            F::Signed32 => bits.cast_signed().into(),
            F::Half | F::Float => f32::from_bits(bits).into(),
            _ if self.largest().is_some() => f32::from_bits(bits).into(),
            _ => bits.cast_signed().into(),
        }
    }

    /// Returns the bits of a channel that stands for `number`, which a filter has made.
    pub(crate) fn bits(&self, number: f64) -> u32 {
        match self.element.format {
            F::Half => {
                let nearest = Half::F16.nearest(number as f32);
                Half::F16.widen(nearest).to_bits()
            }
            F::Float => (number as f32).to_bits(),
            _ if self.largest().is_some() => (number as f32).to_bits(),
            _ => number.floor() as i64 as u32,
        }
    }
}

/// Returns the linear intensity of a colour by sRGB (IEC 61966-2-1). Devices know fewer digits of
/// it: an H200 about eight bits.
fn linear(colour: u8) -> f32 {
    let part = f32::from(colour) / 255.0;
    match part <= 0.040_45 {
        true => part / 12.92,
        false => ((part + 0.055) / 1.055).powf(2.4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use texture_flags::{INTEGERS, SRGB};

    fn read(format: F, channels: u32, flags: u32, bits: [u32; 4]) -> [u32; 4] {
        Format::new(Element { format, channels }, flags).read(bits)
    }

    fn floats(numbers: [f32; 4]) -> [u32; 4] {
        numbers.map(f32::to_bits)
    }

    #[test]
    fn numbers_are_parts_of_the_largest_or_as_they_are() {
        let bits = [0x80, 0xff, 0x7f, 0];
        let parts = floats([128.0 / 255.0, 1.0, 127.0 / 255.0, 0.0]);
        assert_eq!(read(F::Unsigned8, 4, 0, bits), parts);
        let parts = floats([-1.0, -1.0 / 127.0, 1.0, 0.0]);
        assert_eq!(read(F::Signed8, 4, 0, bits), parts);
        assert_eq!(read(F::Unsigned8, 4, INTEGERS, bits), bits);
        let signed = [-128, -1, 127, 0].map(i32::cast_unsigned);
        assert_eq!(read(F::Signed8, 4, INTEGERS, bits), signed);
        let bits = [0x8000, 0xffff, 9, 9];
        let parts = floats([32_768.0 / 65_535.0, 1.0, 0.0, 0.0]);
        assert_eq!(read(F::Unsigned16, 2, 0, bits), parts);
        let parts = floats([-1.0, -1.0 / 32_767.0, 0.0, 0.0]);
        assert_eq!(read(F::Signed16, 2, 0, bits), parts);
        let wide = [0x8765_4321, 5, 6, 7];
        assert_eq!(read(F::Signed32, 1, 0, wide), [0x8765_4321, 0, 0, 0]);
        assert_eq!(read(F::Unsigned32, 4, INTEGERS, wide), wide);
        // Also bits that arithmetic would change.
        let wide = [0x7f80_0001, 1, 0, 0];
        assert_eq!(read(F::Float, 2, 0, wide), wide);
        let halves = [0x3c00, 0xc000, 0x3800, 0x7c00];
        let wanted = floats([1.0, -2.0, 0.5, f32::INFINITY]);
        assert_eq!(read(F::Half, 4, INTEGERS, halves), wanted);
    }

    #[test]
    fn srgb_is_for_colours_of_eight_bits() {
        let grey = linear(0x80);
        assert!((grey - 0.215_86).abs() < 1e-4, "{grey}");
        let part = 128.0 / 255.0;
        let bits = [0x80; 4];
        assert_eq!(
            read(F::Unsigned8, 4, SRGB, bits),
            floats([grey, grey, grey, part])
        );
        assert_eq!(
            read(F::Unsigned8, 2, SRGB, bits),
            floats([grey, part, 0.0, 0.0])
        );
        assert_eq!(
            read(F::Unsigned8, 1, SRGB | INTEGERS, bits),
            [0x80, 0, 0, 0]
        );
        assert_eq!((linear(0), linear(255)), (0.0, 1.0));
    }

    #[test]
    fn the_border_is_what_an_element_could_hold() {
        let border = |format, channels, flags| {
            Format::new(Element { format, channels }, flags).border([0.25, -3.0, 7.0, f32::NAN])
        };
        let parts = floats([64.0 / 255.0, 0.0, 1.0, 0.0]);
        assert_eq!(border(F::Unsigned8, 4, 0), parts);
        let parts = floats([32.0 / 127.0, -1.0, 0.0, 0.0]);
        assert_eq!(border(F::Signed8, 2, 0), parts);
        let same = floats([0.25, -3.0, 7.0, 0.0]);
        assert_eq!(border(F::Float, 4, 0)[..3], same[..3]);
        assert_eq!(border(F::Half, 2, 0)[..2], same[..2]);
        assert_eq!(border(F::Signed32, 1, 0), floats([0.25, 0.0, 0.0, 0.0]));
        assert_eq!(border(F::Unsigned8, 1, INTEGERS), [0; 4]);
    }

    #[test]
    fn filters_compute_with_numbers_of_the_format() {
        let element = |format| Element {
            format,
            channels: 1,
        };
        let signed = Format::new(element(F::Signed32), 0);
        assert_eq!(signed.number(u32::MAX), -1.0);
        assert_eq!(signed.bits(-1.5), (-2_i32).cast_unsigned());
        let unsigned = Format::new(element(F::Unsigned32), 0);
        assert_eq!(unsigned.number(u32::MAX), f64::from(u32::MAX));
        assert_eq!(unsigned.bits(f64::from(u32::MAX)), u32::MAX);
        let part = Format::new(element(F::Unsigned8), 0);
        assert_eq!(part.number(0.5_f32.to_bits()), 0.5);
        assert_eq!(part.bits(0.5), 0.5_f32.to_bits());
        let byte = Format::new(element(F::Signed8), INTEGERS);
        assert_eq!(byte.number((-3_i32).cast_unsigned()), -3.0);
    }
}
