//! What a texture is made of and how it is sampled, from what a program says (CUDA driver API,
//! `cuTexObjectCreate`).

use std::sync::Arc;

use causeway_protocol::message::{CreateTexture, TextureSource, array_flags, texture_flags};

use crate::array::{self, Array, element_bytes, integers};
use crate::device;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::structures::{LinearResource, ResourceDescription, RowsResource, TextureDescription};

/// `CUresourcetype`
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
const LINEAR: u32 = 2;
const ROWS: u32 = 3;
/// Attributes of devices: alignments of textures of memory, and of the distance of their rows.
const ALIGNMENT: u32 = 14;
const PITCH_ALIGNMENT: u32 = 51;
/// Largest `CUaddress_mode` and `CUfilter_mode`.
const ADDRESS_MODE_MAX: u32 = 3;
const FILTER_MAX: u32 = 1;
/// `CU_TR_FILTER_MODE_LINEAR`
const LINEAR_FILTER: u32 = 1;
/// Largest anisotropy; larger ones mean it.
const ANISOTROPY_MAX: u32 = 16;

/// What a texture is made of, as the device is asked for it.
pub(super) struct Source {
    pub(super) array: Option<Arc<Array>>,
    /// Format of a channel.
    format: u32,
    /// Whether the array is a cube.
    is_cube: bool,
    /// The request, without the sampling.
    request: CreateTexture,
}

/// Returns what a texture is to be made of.
///
/// # Errors
/// `INVALID_VALUE` for what CUDA has not, or memory that the GPU does not reach; `NOT_SUPPORTED`
/// for mipmapped arrays, and for arrays of other devices.
pub(super) fn source(driver: &'static Driver, given: &ResourceDescription) -> Answer<Source> {
    let wrong = Code::INVALID_VALUE;
    if given.flags != 0 {
        return Err(wrong);
    }
    match given.kind {
        ARRAY => array::find_on(driver, given.content[0]).map(of_array),
        MIPMAPPED_ARRAY => Err(Code::NOT_SUPPORTED),
        LINEAR => of_linear(driver, given.read().ok_or(wrong)?),
        ROWS => of_rows(driver, given.read().ok_or(wrong)?),
        _ => Err(wrong),
    }
}

fn of_array(array: Arc<Array>) -> Source {
    Source {
        format: array.given.format,
        is_cube: array.given.flags & array_flags::CUBEMAP != 0,
        array: Some(array),
        request: CreateTexture {
            source: TextureSource::Array as u32,
            ..CreateTexture::default()
        },
    }
}

fn of_linear(driver: &Driver, given: LinearResource) -> Answer<Source> {
    let element = u64::from(element_bytes(given.format, given.channels)?);
    check_aligned(driver, ALIGNMENT, given.address)?;
    // CUDA rounds a size that ends within an element down.
    let bytes = given.bytes / element * element;
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    Ok(of_memory(CreateTexture {
        source: TextureSource::Linear as u32,
        address: driver.memory.reached_by_gpu(given.address, bytes)?,
        width: bytes,
        format: given.format,
        channels: given.channels,
        ..CreateTexture::default()
    }))
}

fn of_rows(driver: &Driver, given: RowsResource) -> Answer<Source> {
    let wrong = Code::INVALID_VALUE;
    let element = u64::from(element_bytes(given.format, given.channels)?);
    check_aligned(driver, ALIGNMENT, given.address)?;
    check_aligned(driver, PITCH_ALIGNMENT, given.pitch)?;
    let width_bytes = given.width.checked_mul(element).ok_or(wrong)?;
    if width_bytes == 0 || given.height == 0 || given.pitch < width_bytes {
        return Err(wrong);
    }
    let before = given.pitch.checked_mul(given.height - 1).ok_or(wrong)?;
    let bytes = before.checked_add(width_bytes).ok_or(wrong)?;
    Ok(of_memory(CreateTexture {
        source: TextureSource::Rows as u32,
        address: driver.memory.reached_by_gpu(given.address, bytes)?,
        width: given.width,
        height: given.height,
        pitch: given.pitch,
        format: given.format,
        channels: given.channels,
        ..CreateTexture::default()
    }))
}

fn of_memory(request: CreateTexture) -> Source {
    Source {
        array: None,
        format: request.format,
        is_cube: false,
        request,
    }
}

/// Refuses a number that is no multiple of what an attribute of the device says.
fn check_aligned(driver: &Driver, attribute: u32, number: u64) -> Answer {
    let alignment = device::attribute(driver, attribute).unwrap_or(1).max(1);
    match number.is_multiple_of(u64::from(alignment.unsigned_abs())) {
        true => Ok(()),
        false => Err(Code::INVALID_VALUE),
    }
}

/// Returns the request for a texture of `source` that is sampled as `given` says.
///
/// # Errors
/// `INVALID_VALUE` for ways that CUDA does not have.
pub(super) fn sampled(source: &Source, given: &TextureDescription) -> Answer<CreateTexture> {
    let is_known = given.address_modes.iter().all(|it| *it <= ADDRESS_MODE_MAX)
        && given.filter <= FILTER_MAX
        && given.mipmap_filter <= FILTER_MAX
        && given.flags & !texture_flags::ALL == 0;
    let is_seamless = given.flags & texture_flags::SEAMLESS != 0;
    if !is_known || is_seamless && !source.is_cube {
        return Err(Code::INVALID_VALUE);
    }
    let request = CreateTexture {
        flags: given.flags,
        anisotropy: given.anisotropy.min(ANISOTROPY_MAX),
        border: given.border,
        ..source.request
    };
    if source.request.source == TextureSource::Linear as u32 {
        // Kernels read it by the numbers of elements: CUDA ignores modes and filter.
        return Ok(request);
    }
    let (are_integers, are_always_read_so) = integers(source.format);
    let are_read_so = given.flags & texture_flags::INTEGERS != 0 || are_always_read_so;
    if given.filter == LINEAR_FILTER && are_integers && are_read_so {
        return Err(Code::INVALID_VALUE);
    }
    Ok(CreateTexture {
        address_modes: given.address_modes,
        filter: given.filter,
        ..request
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(source: TextureSource, format: u32) -> Source {
        of_memory(CreateTexture {
            source: source as u32,
            address: 0x1000,
            width: 64,
            format,
            channels: 1,
            ..CreateTexture::default()
        })
    }

    #[test]
    fn a_texture_is_sampled_as_the_program_says() {
        let given = TextureDescription {
            address_modes: [0, 2, 3],
            filter: 1,
            flags: texture_flags::NORMALIZED | texture_flags::SRGB,
            anisotropy: 99,
            border: [1, 2, 3, 4],
            ..TextureDescription::default()
        };
        let request = sampled(&memory(TextureSource::Rows, 0x20), &given).unwrap();
        assert_eq!(request.address_modes, [0, 2, 3]);
        assert_eq!((request.filter, request.anisotropy), (1, 16));
        assert_eq!((request.flags, request.border), (0x12, [1, 2, 3, 4]));
        assert_eq!((request.address, request.width), (0x1000, 64));
        let request = sampled(&memory(TextureSource::Linear, 3), &given).unwrap();
        assert_eq!((request.address_modes, request.filter), ([0; 3], 0));
    }

    #[test]
    fn integers_that_are_read_as_such_are_not_filtered() {
        let linear = |flags| TextureDescription {
            filter: 1,
            flags,
            ..TextureDescription::default()
        };
        let code = |format, flags| {
            let source = memory(TextureSource::Rows, format);
            sampled(&source, &linear(flags)).err()
        };
        for format in [1, 2, 8, 9] {
            assert_eq!(code(format, 0), None, "{format}");
            assert_eq!(code(format, 1), Some(Code::INVALID_VALUE), "{format}");
        }
        assert_eq!(code(3, 0), Some(Code::INVALID_VALUE), "never fractions");
        assert_eq!(code(0x10, 1), None, "no integers");
        assert_eq!(code(0x20, 1), None);
    }

    #[test]
    fn unknown_ways_to_sample_are_refused() {
        let wrong = [
            TextureDescription {
                address_modes: [0, 0, 4],
                ..TextureDescription::default()
            },
            TextureDescription {
                filter: 2,
                ..TextureDescription::default()
            },
            TextureDescription {
                mipmap_filter: 2,
                ..TextureDescription::default()
            },
            TextureDescription {
                flags: 4,
                ..TextureDescription::default()
            },
            TextureDescription {
                flags: texture_flags::SEAMLESS,
                ..TextureDescription::default()
            },
        ];
        let mut source = memory(TextureSource::Rows, 0x20);
        for given in wrong {
            let refused = sampled(&source, &given).err();
            assert_eq!(refused, Some(Code::INVALID_VALUE), "{given:?}");
        }
        source.is_cube = true;
        assert!(sampled(&source, &wrong[4]).is_ok());
    }
}
