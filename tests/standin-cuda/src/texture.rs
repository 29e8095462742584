//! Textures and surfaces (CUDA driver API, "Texture Object Management", "Surface Object
//! Management"). They are created, counted and destroyed; kernels cannot use them.

use std::sync::Arc;

use zerocopy::FromBytes;

use crate::array;
use crate::boundary::{In, Out};
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::ledger::Counted;

/// Alignment of a texture's memory and of its rows, in bytes, as on an H200.
const ALIGNMENT: u64 = 512;
const PITCH_ALIGNMENT: u64 = 32;

/// `CUDA_RESOURCE_DESC`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct Resource {
    /// A `CUresourcetype`.
    kind: u32,
    padding: u32,
    /// A union: what is in it depends on `kind`.
    words: [u64; 16],
    flags: u32,
    padding_behind: u32,
}

/// `CUDA_TEXTURE_DESC`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct Sampling {
    address_modes: [u32; 3],
    filter: u32,
    flags: u32,
    anisotropy: u32,
    mipmap_filter: u32,
    mipmap: [f32; 3],
    border: [f32; 4],
    reserved: [u32; 12],
}

/// A texture or a surface of a context.
pub(crate) struct Texture {
    pub(crate) context: usize,
    is_surface: bool,
    _counted: Counted,
}

impl Resource {
    /// Refuses what no texture is made of. Addresses need not be mapped, as on an H200.
    fn check(&self, driver: &Driver) -> Answer {
        let [first, element, size, height, pitch, ..] = self.words;
        let (format, channels) = (element as u32, (element >> 32) as u32);
        let is_element =
            matches!(format, 1..=3 | 8..=10 | 16 | 32) && matches!(channels, 1 | 2 | 4);
        let is_memory = is_element && first != 0 && first.is_multiple_of(ALIGNMENT) && size != 0;
        let is_right = self.flags == 0
            && match self.kind {
                0 => array::find(driver, first as usize).is_ok(),
                2 => is_memory,
                3 => is_memory && height != 0 && pitch.is_multiple_of(PITCH_ALIGNMENT),
                _ => false,
            };
        is_right.then_some(()).ok_or(Code::INVALID_VALUE)
    }
}

fn create(object: Out<u64>, resource: In<Resource>, is_surface: bool) -> u32 {
    call_in_context(|driver, context| {
        let resource = resource.get()?;
        resource.check(driver)?;
        if object.is_null() || (is_surface && resource.kind != 0) {
            return Err(Code::INVALID_VALUE);
        }
        let made = Texture {
            context: context.handle,
            is_surface,
            _counted: Counted::new(driver)?,
        };
        object.set(driver.state().textures.insert(Arc::new(made)) as u64)
    })
}

fn destroy(object: u64, is_surface: bool) -> u32 {
    call_in_context(|driver, _| {
        let mut state = driver.state();
        let found = state.textures.get(object as usize);
        let is_right = found.is_some_and(|found| found.is_surface == is_surface);
        let removed = is_right.then(|| state.textures.remove(object as usize));
        drop(state);
        removed.map(drop).ok_or(Code::INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuTexObjectCreate(
    object: Out<u64>,
    resource: In<Resource>,
    sampling: In<Sampling>,
    view: usize,
) -> u32 {
    let is_right = sampling.get().is_ok_and(|given| {
        let are_modes = given.address_modes.iter().all(|mode| *mode <= 3);
        are_modes && given.filter <= 1 && given.anisotropy <= 16
    });
    if !is_right || view != 0 {
        return Code::INVALID_VALUE.0;
    }
    create(object, resource, false)
}

#[unsafe(no_mangle)]
extern "C" fn cuTexObjectDestroy(object: u64) -> u32 {
    destroy(object, false)
}

#[unsafe(no_mangle)]
extern "C" fn cuSurfObjectCreate(object: Out<u64>, resource: In<Resource>) -> u32 {
    create(object, resource, true)
}

#[unsafe(no_mangle)]
extern "C" fn cuSurfObjectDestroy(object: u64) -> u32 {
    destroy(object, true)
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::{CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC};

    use super::*;

    #[test]
    fn descriptions_are_as_large_as_those_of_the_header() {
        assert_eq!(size_of::<Resource>(), size_of::<CUDA_RESOURCE_DESC>());
        assert_eq!(size_of::<Sampling>(), size_of::<CUDA_TEXTURE_DESC>());
    }
}
