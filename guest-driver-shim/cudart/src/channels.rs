//! Elements of arrays and textures (CUDA Runtime API, `channel_descriptor.h`): the runtime says how
//! many bits each of their channels has, the driver has numbers for the formats of channels.

use std::num::NonZeroUsize;

use causeway_cuda_abi::error::{Answer, Code};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::INVALID_CHANNELS;

/// `cudaChannelFormatDesc`: bits of the four channels of an element, and their kind.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Channels {
    bits: [i32; 4],
    kind: u32,
}

/// The driver's description of an element: `CUarray_format`, and 1, 2 or 4 channels.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Format {
    pub number: u32,
    pub channels: u32,
}

/// `enum cudaChannelFormatKind`
const SIGNED: u32 = 0;
const UNSIGNED: u32 = 1;
const FLOAT: u32 = 2;
const NV12: u32 = 4;

/// Kind and bits of a channel, and the driver's number for both (`enum CUarray_format`).
const FORMATS: [(u32, i32, u32); 8] = [
    (UNSIGNED, 8, 0x01),
    (UNSIGNED, 16, 0x02),
    (UNSIGNED, 32, 0x03),
    (SIGNED, 8, 0x08),
    (SIGNED, 16, 0x09),
    (SIGNED, 32, 0x0a),
    (FLOAT, 16, 0x10),
    (FLOAT, 32, 0x20),
];

/// Channel kinds that fix the whole format of an element, the bits that go with each, and the
/// driver's number. Kinds up to [`LAST_FRACTIONS`] are read only as normalized floats
/// (`cudaReadModeNormalizedFloat`); some of them are compressed in blocks.
const WHOLE: [(u32, [i32; 4], u32); 28] = [
    (NV12, [8, 8, 8, 0], 0xb0),
    // `…UnsignedNormalized…`
    (5, [8, 0, 0, 0], 0xc0),
    (6, [8, 8, 0, 0], 0xc1),
    (7, [8, 8, 8, 8], 0xc2),
    (8, [16, 0, 0, 0], 0xc3),
    (9, [16, 16, 0, 0], 0xc4),
    (10, [16, 16, 16, 16], 0xc5),
    // `…SignedNormalized…`
    (11, [8, 0, 0, 0], 0xc6),
    (12, [8, 8, 0, 0], 0xc7),
    (13, [8, 8, 8, 8], 0xc8),
    (14, [16, 0, 0, 0], 0xc9),
    (15, [16, 16, 0, 0], 0xca),
    (16, [16, 16, 16, 16], 0xcb),
    // `…BlockCompressed…`
    (17, [8, 8, 8, 8], 0x91),
    (18, [8, 8, 8, 8], 0x92),
    (19, [8, 8, 8, 8], 0x93),
    (20, [8, 8, 8, 8], 0x94),
    (21, [8, 8, 8, 8], 0x95),
    (22, [8, 8, 8, 8], 0x96),
    (23, [8, 0, 0, 0], 0x97),
    (24, [8, 0, 0, 0], 0x98),
    (25, [8, 8, 0, 0], 0x99),
    (26, [8, 8, 0, 0], 0x9a),
    (27, [16, 16, 16, 0], 0x9b),
    (28, [16, 16, 16, 0], 0x9c),
    (29, [8, 8, 8, 8], 0x9d),
    (30, [8, 8, 8, 8], 0x9e),
    // `…UnsignedNormalized1010102`
    (31, [10, 10, 10, 2], 0x50),
];
const FIRST_BLOCKS: u32 = 17;
const LAST_FRACTIONS: u32 = 30;

impl Channels {
    /// Returns the driver's description.
    ///
    /// # Errors
    /// [`INVALID_CHANNELS`]: they are not 1, 2 or 4 of the same bits, or no format has them.
    pub fn format(self) -> Answer<Format> {
        let is_whole = |it: &&(u32, [i32; 4], u32)| (it.0, it.1) == (self.kind, self.bits);
        if let Some((_, bits, number)) = WHOLE.iter().find(is_whole) {
            let channels = bits.iter().filter(|bits| **bits > 0).count() as u32;
            return Ok(Format {
                number: *number,
                channels,
            });
        }
        let of_all = self.bits[0];
        let count = self.bits.iter().take_while(|bits| **bits == of_all).count();
        let are_first = self.bits[count..].iter().all(|bits| *bits == 0);
        let is_format = |it: &&(u32, i32, u32)| (it.0, it.1) == (self.kind, of_all);
        match FORMATS.iter().find(is_format) {
            Some((_, _, number)) if are_first && count != 3 => Ok(Format {
                number: *number,
                channels: count as u32,
            }),
            _ => Err(INVALID_CHANNELS),
        }
    }
}

impl Format {
    /// Kind and bits of an element that its kind says.
    fn whole(self) -> Option<Channels> {
        let known = WHOLE.iter().find(|it| it.2 == self.number)?;
        Some(Channels {
            kind: known.0,
            bits: known.1,
        })
    }

    /// Kind and bits of a channel.
    fn channel(self) -> Answer<(u32, i32)> {
        let known = FORMATS.iter().find(|it| it.2 == self.number);
        known
            .map(|(kind, bits, _)| (*kind, *bits))
            .ok_or(INVALID_CHANNELS)
    }

    /// Returns the runtime's description.
    ///
    /// # Errors
    /// [`INVALID_CHANNELS`]: it has none for this format.
    pub fn description(self) -> Answer<Channels> {
        if let Some(whole) = self.whole() {
            return Ok(whole);
        }
        let (kind, of_each) = self.channel()?;
        let mut bits = [0; 4];
        let used = bits.get_mut(..self.channels as usize);
        used.ok_or(Code::INVALID_VALUE)?.fill(of_each);
        Ok(Channels { bits, kind })
    }

    /// Whether channels are integers. A format that the runtime does not know has none.
    pub fn is_integer(self) -> bool {
        self.channel().is_ok_and(|(kind, _)| kind != FLOAT)
    }

    /// Whether channels are integers that textures can read as fractions of the largest one.
    pub fn has_fractions(self) -> bool {
        self.is_integer() && self.channel().is_ok_and(|(_, bits)| bits < 32)
    }

    /// Whether elements can only be read as fractions.
    pub fn is_fractions(self) -> bool {
        self.whole().is_some_and(|it| it.kind <= LAST_FRACTIONS)
    }

    /// Returns the size of an element in bytes.
    ///
    /// # Errors
    /// [`INVALID_CHANNELS`]: the format is unknown, or elements have no bytes of their own.
    pub fn bytes(self) -> Answer<NonZeroUsize> {
        let it = self.description()?;
        let is_shared = (FIRST_BLOCKS..=LAST_FRACTIONS).contains(&it.kind) || it.kind == NV12;
        let bits: i32 = it.bits.iter().sum();
        match is_shared {
            true => Err(INVALID_CHANNELS),
            false => NonZeroUsize::new(bits as usize / 8).ok_or(INVALID_CHANNELS),
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaCreateChannelDesc(x: i32, y: i32, z: i32, w: i32, kind: u32) -> Channels {
    Channels {
        bits: [x, y, z, w],
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_comes_back_with_1_2_and_4_channels() {
        for (kind, bits, number) in FORMATS {
            for channels in [1, 2, 4] {
                let format = Format { number, channels };
                let described = format.description().unwrap();
                assert_eq!(described.kind, kind);
                let sum: i32 = described.bits.iter().sum();
                assert_eq!((sum / bits) as u32, channels);
                assert_eq!(format.bytes().unwrap().get(), sum as usize / 8);
                assert_eq!(described.format(), Ok(format));
            }
        }
    }

    #[test]
    fn channels_that_no_format_has_are_refused() {
        let wrong = [
            ([8, 8, 8, 0], UNSIGNED),
            ([8, 16, 0, 0], UNSIGNED),
            ([8, 0, 8, 0], UNSIGNED),
            ([0, 8, 0, 0], UNSIGNED),
            ([0, 0, 0, 0], UNSIGNED),
            ([8, 0, 0, 0], FLOAT),
            ([64, 0, 0, 0], SIGNED),
            ([-8, 0, 0, 0], SIGNED),
            // `cudaChannelFormatKindNone`
            ([8, 0, 0, 0], 3),
            // Kinds that say all, with other bits.
            ([8, 8, 0, 0], 5),
            ([8, 0, 0, 0], 17),
            ([8, 8, 8, 8], 31),
            ([8, 0, 0, 0], 32),
        ];
        for (bits, kind) in wrong {
            assert_eq!(Channels { bits, kind }.format(), Err(INVALID_CHANNELS));
        }
        // Formats with planes that the runtime does not have.
        let planes = Format {
            number: 0x9f,
            channels: 3,
        };
        assert_eq!(planes.description(), Err(INVALID_CHANNELS));
        assert_eq!(planes.bytes(), Err(INVALID_CHANNELS));
    }

    #[test]
    fn kinds_that_say_all_come_back_and_have_bytes_if_they_have_no_blocks() {
        for (kind, bits, number) in WHOLE {
            let described = Channels { bits, kind };
            let format = described.format().unwrap();
            assert_eq!(format.number, number);
            assert_eq!(format.description(), Ok(described));
            assert_eq!(format.is_fractions(), kind != 31);
            assert!(!format.is_integer());
        }
        let of = |number, channels| Format { number, channels }.bytes().map(NonZeroUsize::get);
        assert_eq!(
            (of(0xc1, 2), of(0xcb, 4), of(0x50, 4)),
            (Ok(2), Ok(8), Ok(4))
        );
        for (number, channels) in [(0xb0, 3), (0x91, 4), (0x9e, 4)] {
            assert_eq!(of(number, channels), Err(INVALID_CHANNELS));
        }
    }
}
