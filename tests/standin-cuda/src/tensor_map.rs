//! Descriptions of tensors (CUDA driver API, "Tensor Map Object Management"). What a GPU reads is
//! not documented: the stand-in writes the arguments that identify a tensor.

use crate::boundary::{In, Out};
use crate::driver::answer;
use crate::error::{Answer, Code};

/// Words of a description.
const WORDS: usize = 16;
/// Boundary on which a description lies, in bytes.
const ALIGNMENT: usize = 64;

/// What both kinds of tensors have.
struct Tensor {
    data_type: u32,
    rank: usize,
    address: u64,
    modes: [u32; 4],
}

fn check(is_fine: bool) -> Answer {
    is_fine.then_some(()).ok_or(Code::INVALID_VALUE)
}

fn check_place(map: Out<u64>) -> Answer {
    check(!map.is_null() && map.address_of(0)?.is_multiple_of(ALIGNMENT))
}

impl Tensor {
    fn check(&self, rank_min: usize) -> Answer {
        let [interleave, swizzle, promotion, fill] = self.modes;
        check(self.data_type <= 15 && (rank_min..=5).contains(&self.rank))?;
        check(interleave <= 2 && swizzle <= 6 && promotion <= 3 && fill <= 1)?;
        check(interleave == 0 || self.rank >= 3)?;
        check(
            self.address
                .is_multiple_of(if interleave == 2 { 32 } else { 16 }),
        )
    }

    /// Writes the tensor, and what kernels copy of it.
    fn encode(
        &self,
        map: Out<u64>,
        (dimensions, strides): (In<u64>, In<u64>),
        steps: In<u32>,
        copied: &[u32],
    ) -> Answer {
        let dimensions = dimensions.list(self.rank)?;
        let strides = strides.list(self.rank - 1)?;
        let steps = steps.list(self.rank)?;
        check(dimensions.iter().all(|count| (1..=1 << 32).contains(count)))?;
        check(
            strides
                .iter()
                .all(|bytes| bytes.is_multiple_of(16) && *bytes < 1 << 40),
        )?;
        check(steps.iter().all(|step| (1..=8).contains(step)))?;
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let [interleave, swizzle, promotion, fill] = self.modes;
        let mut words = [0; WORDS];
        words[0] = self.address;
        words[1] = pair(self.data_type, self.rank as u32);
        words[2] = pair(interleave | swizzle << 8, promotion | fill << 8);
        words[3..][..dimensions.len()].copy_from_slice(&dimensions);
        words[8..][..strides.len()].copy_from_slice(&strides);
        for (index, count) in steps.iter().chain(copied).enumerate() {
            words[12 + index % 4] ^= u64::from(*count) << (index / 4 * 16);
        }
        (0..WORDS).try_for_each(|index| map.set_at(index, words[index]))
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapEncodeTiled(
    map: Out<u64>,
    data_type: u32,
    rank: u32,
    address: u64,
    dimensions: In<u64>,
    strides: In<u64>,
    box_elements: In<u32>,
    element_strides: In<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> u32 {
    answer(|| {
        check_place(map)?;
        let tensor = Tensor {
            data_type,
            rank: rank as usize,
            address,
            modes: [interleave, swizzle, promotion, fill],
        };
        tensor.check(1)?;
        let boxes = box_elements.list(tensor.rank)?;
        check(boxes.iter().all(|count| (1..=256).contains(count)))?;
        tensor.encode(map, (dimensions, strides), element_strides, &boxes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapEncodeIm2col(
    map: Out<u64>,
    data_type: u32,
    rank: u32,
    address: u64,
    dimensions: In<u64>,
    strides: In<u64>,
    lower_corner: In<u32>,
    upper_corner: In<u32>,
    channels: u32,
    pixels: u32,
    element_strides: In<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> u32 {
    answer(|| {
        check_place(map)?;
        let tensor = Tensor {
            data_type,
            rank: rank as usize,
            address,
            modes: [interleave, swizzle, promotion, fill],
        };
        tensor.check(3)?;
        check(channels <= 256 && pixels <= 1024)?;
        let mut copied = lower_corner.list(tensor.rank - 2)?;
        copied.extend(upper_corner.list(tensor.rank - 2)?);
        copied.extend([channels, pixels]);
        tensor.encode(map, (dimensions, strides), element_strides, &copied)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapReplaceAddress(map: Out<u64>, address: u64) -> u32 {
    answer(|| {
        check_place(map)?;
        check(address.is_multiple_of(16))?;
        map.set_at(0, address)
    })
}
