//! Surfaces (CUDA driver API, "Surface Object Management"), by which kernels read and write arrays.

use causeway_protocol::message::{CreateTexture, TextureSource, array_flags};

use crate::array::{self, check_supported};
use crate::boundary::{In, Out};
use crate::driver::call_in_context;
use crate::error::Code;
use crate::structures::{ResourceDescription, TextureDescription};

/// `CU_RESOURCE_TYPE_ARRAY`
const ARRAY: u32 = 0;

#[unsafe(no_mangle)]
extern "C" fn cuSurfObjectCreate(surface: Out<u64>, resource: In<ResourceDescription>) -> u32 {
    call_in_context(|driver, context| {
        check_supported(driver)?;
        let resource = resource.get()?;
        if surface.is_null() || resource.kind != ARRAY || resource.flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let array = array::find_on(driver, resource.content[0])?;
        if array.given.flags & array_flags::SURFACE == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let request = CreateTexture {
            source: TextureSource::Surface as u32,
            ..CreateTexture::default()
        };
        let made = driver.arrays.surfaces.create(
            (driver, context),
            (resource, TextureDescription::default()),
            (Some(&*array), &request),
        );
        surface.set(made?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuSurfObjectDestroy(surface: u64) -> u32 {
    call_in_context(|driver, _| {
        check_supported(driver)?;
        driver.arrays.surfaces.destroy(driver, surface)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuSurfObjectGetResourceDesc(into: Out<ResourceDescription>, surface: u64) -> u32 {
    call_in_context(|driver, _| {
        check_supported(driver)?;
        into.set(driver.arrays.surfaces.describe(surface)?.0)
    })
}
