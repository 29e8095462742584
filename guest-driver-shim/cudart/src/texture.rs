//! Textures and surfaces (CUDA Runtime API, "Texture Object Management" and "Surface Object
//! Management"). Their numbers are the driver's; what describes them differs.

use causeway_cuda_abi::boundary::{In, Out};
use causeway_cuda_abi::error::Answer;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::channels::Format;
use crate::driver::driver;
use crate::error::{INVALID_FILTER, INVALID_FRACTIONS};
use crate::resource::{DriverResource, LongResource, LongView, Resource, View};
use crate::table::calls;

/// `cudaTextureDesc`. Fractions are kept as their bits: the border may have integers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
struct Sampling {
    address_modes: [u32; 3],
    filter: u32,
    read_mode: u32,
    is_srgb: u32,
    border: [u32; 4],
    is_normalized: u32,
    anisotropy: u32,
    /// Filter between levels, bias, least and greatest level.
    levels: [u32; 4],
    is_exact_trilinear: u32,
    is_seamless: u32,
}

/// `CUDA_TEXTURE_DESC`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct DriverSampling {
    address_modes: [u32; 3],
    filter: u32,
    flags: u32,
    anisotropy: u32,
    levels: [u32; 4],
    border: [u32; 4],
    reserved: [u32; 12],
}

/// `cudaReadModeElementType` and `cudaReadModeNormalizedFloat`: integers are read as they are, or
/// as fractions.
const AS_THEY_ARE: u32 = 0;
const AS_FRACTIONS: u32 = 1;

/// `cudaFilterModeLinear`
const LINEAR: u32 = 1;

/// `CU_TRSF_…`
const READ_AS_INTEGER: u32 = 0x01;
const NORMALIZED: u32 = 0x02;
const SRGB: u32 = 0x10;
const EXACT_TRILINEAR: u32 = 0x20;
const SEAMLESS: u32 = 0x40;

// Textures.
calls! {
    fn cudaCreateTextureObject(into: Out<u64>, resource: In<Resource>, sampling: In<Sampling>,
                               view: In<View>) => {
        let (into, resource) = (into.address_of(0)?, resource.get()?.of_driver()?);
        // As NVIDIA's, even if the view has another format.
        let sampling = sampling.get()?.of_driver(resource.format()?)?;
        let view = if view.is_null() { None } else { Some(LongView::of(view.get()?)) };
        let view = view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        driver!(cuTexObjectCreate(into, &raw const resource, &raw const sampling, view))
    };
    fn cudaDestroyTextureObject(texture: u64) = cuTexObjectDestroy(texture);
    fn cudaGetTextureObjectTextureDesc(into: Out<Sampling>, texture: u64) => {
        let mut sampling = DriverSampling::new_zeroed();
        driver!(cuTexObjectGetTextureDesc(&raw mut sampling, texture))?;
        into.set(Sampling::of(sampling, of_texture(texture)?.format()?))
    };
    fn cudaGetTextureObjectResourceDesc(into: Out<LongResource>, texture: u64)
        => into.set(LongResource::of(Resource::of(of_texture(texture)?)?));
    fn cuda12_GetTextureObjectResourceDesc(into: Out<Resource>, texture: u64)
        => into.set(Resource::of(of_texture(texture)?)?);
    fn cudaGetTextureObjectResourceViewDesc(into: Out<LongView>, texture: u64)
        => into.set(view_of(texture)?);
    fn cuda12_GetTextureObjectResourceViewDesc(into: Out<View>, texture: u64)
        => into.set(view_of(texture)?.view);
}

// Surfaces.
calls! {
    fn cudaCreateSurfaceObject(into: Out<u64>, resource: In<Resource>) => {
        let (into, resource) = (into.address_of(0)?, resource.get()?.of_driver()?);
        driver!(cuSurfObjectCreate(into, &raw const resource))
    };
    fn cudaDestroySurfaceObject(surface: u64) = cuSurfObjectDestroy(surface);
    fn cudaGetSurfaceObjectResourceDesc(into: Out<LongResource>, surface: u64)
        => into.set(LongResource::of(Resource::of(of_surface(surface)?)?));
    fn cuda12_GetSurfaceObjectResourceDesc(into: Out<Resource>, surface: u64)
        => into.set(Resource::of(of_surface(surface)?)?);
}

/// What a texture is made of.
fn of_texture(texture: u64) -> Answer<DriverResource> {
    let mut resource = DriverResource::new_zeroed();
    driver!(cuTexObjectGetResourceDesc(&raw mut resource, texture))?;
    Ok(resource)
}

/// What a surface is made of.
fn of_surface(surface: u64) -> Answer<DriverResource> {
    let mut resource = DriverResource::new_zeroed();
    driver!(cuSurfObjectGetResourceDesc(&raw mut resource, surface))?;
    Ok(resource)
}

fn view_of(texture: u64) -> Answer<LongView> {
    let mut view = LongView::new_zeroed();
    driver!(cuTexObjectGetResourceViewDesc(&raw mut view, texture))?;
    Ok(view)
}

impl Sampling {
    /// The driver's description for elements of this format. That small integers are read as they
    /// are is a flag of the driver's; all others are.
    ///
    /// # Errors
    /// As NVIDIA's: a linear filter is refused for integers that are read as integers, even where
    /// the filter is ignored. Some formats cannot be read as normalized floats, and some only so.
    fn of_driver(self, format: Format) -> Answer<DriverSampling> {
        let are_fractions = self.read_mode == AS_FRACTIONS;
        if self.filter == LINEAR
            && format.is_integer()
            && !(are_fractions && format.has_fractions())
        {
            return Err(INVALID_FILTER);
        }
        if !format.has_fractions() && are_fractions != format.is_fractions() {
            return Err(INVALID_FRACTIONS);
        }
        let flags = [
            (format.has_fractions() && !are_fractions, READ_AS_INTEGER),
            (self.is_normalized != 0, NORMALIZED),
            (self.is_srgb != 0, SRGB),
            (self.is_exact_trilinear != 0, EXACT_TRILINEAR),
            (self.is_seamless != 0, SEAMLESS),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
        Ok(DriverSampling {
            address_modes: self.address_modes,
            filter: self.filter,
            flags: flags.map(|(_, flag)| flag).sum(),
            anisotropy: self.anisotropy,
            levels: self.levels,
            border: self.border,
            reserved: [0; 12],
        })
    }

    /// The runtime's description for elements of this format.
    fn of(it: DriverSampling, format: Format) -> Self {
        let has = |flag| u32::from(it.flags & flag != 0);
        let are_small = format.has_fractions() && has(READ_AS_INTEGER) == 0;
        let are_fractions = are_small || format.is_fractions();
        Self {
            address_modes: it.address_modes,
            filter: it.filter,
            read_mode: if are_fractions {
                AS_FRACTIONS
            } else {
                AS_THEY_ARE
            },
            is_srgb: has(SRGB),
            border: it.border,
            is_normalized: has(NORMALIZED),
            anisotropy: it.anisotropy,
            levels: it.levels,
            is_exact_trilinear: has(EXACT_TRILINEAR),
            is_seamless: has(SEAMLESS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_as_large_as_those_of_the_headers() {
        assert_eq!(size_of::<Sampling>(), 72);
        assert_eq!(size_of::<DriverSampling>(), 104);
    }

    const fn format(number: u32) -> Format {
        Format {
            number,
            channels: 1,
        }
    }

    const BYTES: Format = format(0x01);
    const INTEGERS: Format = format(0x0a);
    const HALVES: Format = format(0x10);
    const FLOATS: Format = format(0x20);
    const NORMALIZED_BYTES: Format = format(0xc0);
    const TENS: Format = format(0x50);

    fn sampling(read_mode: u32, filter: u32) -> Sampling {
        Sampling {
            read_mode,
            filter,
            ..Sampling::default()
        }
    }

    #[test]
    fn only_small_integers_have_a_flag_for_how_they_are_read() {
        let flags = |read_mode, format| {
            let it = sampling(read_mode, 0).of_driver(format).unwrap();
            assert_eq!(Sampling::of(it, format).read_mode, read_mode);
            it.flags
        };
        assert_eq!(flags(AS_THEY_ARE, BYTES), READ_AS_INTEGER);
        assert_eq!(flags(AS_FRACTIONS, BYTES), 0);
        for format in [INTEGERS, HALVES, FLOATS, TENS] {
            assert_eq!(flags(AS_THEY_ARE, format), 0);
        }
        assert_eq!(flags(AS_FRACTIONS, NORMALIZED_BYTES), 0);
    }

    #[test]
    fn what_no_texture_can_read_is_refused_with_the_errors_of_nvidia() {
        let error = |read_mode, filter, format| {
            let it = sampling(read_mode, filter).of_driver(format);
            it.err().map_or(0, |code| code.0)
        };
        for format in [BYTES, INTEGERS] {
            assert_eq!(error(AS_THEY_ARE, LINEAR, format), 26);
        }
        assert_eq!(error(AS_FRACTIONS, LINEAR, BYTES), 0);
        assert_eq!(error(AS_FRACTIONS, LINEAR, INTEGERS), 26);
        for format in [HALVES, FLOATS] {
            assert_eq!(error(AS_THEY_ARE, LINEAR, format), 0);
            assert_eq!(error(AS_FRACTIONS, LINEAR, format), 27);
        }
        assert_eq!(error(AS_FRACTIONS, 0, INTEGERS), 27);
        for filter in [0, LINEAR] {
            assert_eq!(error(AS_THEY_ARE, filter, NORMALIZED_BYTES), 27);
            assert_eq!(error(AS_FRACTIONS, filter, NORMALIZED_BYTES), 0);
            assert_eq!(error(AS_THEY_ARE, filter, TENS), 0);
            assert_eq!(error(AS_FRACTIONS, filter, TENS), 27);
        }
    }

    #[test]
    fn all_that_describes_a_texture_comes_back() {
        let it = Sampling {
            address_modes: [1, 2, 3],
            filter: LINEAR,
            read_mode: AS_THEY_ARE,
            is_srgb: 1,
            border: [4, 5, 6, 7],
            is_normalized: 1,
            anisotropy: 8,
            levels: [9, 10, 11, 12],
            is_exact_trilinear: 1,
            is_seamless: 1,
        };
        let of_driver = it.of_driver(FLOATS).unwrap();
        assert_eq!(of_driver.flags, 0x72);
        assert_eq!(Sampling::of(of_driver, FLOATS), it);
    }
}
