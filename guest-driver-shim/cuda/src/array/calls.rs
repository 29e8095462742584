//! Calls about arrays, but for copies.

use super::{check_supported, create, elements, find};
use crate::boundary::{In, Out};
use crate::driver::{call_about, call_in_context, call_on};
use crate::error::Code;
use crate::structures::{ArrayDescription, ArrayDescription3d, ArrayMemory};

/// Most elements of a texture of one row of memory (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
const LINEAR_ELEMENTS_MAX: usize = 1 << 28;

#[unsafe(no_mangle)]
extern "C" fn cuArrayCreate_v2(array: Out<usize>, given: In<ArrayDescription>) -> u32 {
    call_in_context(|driver, context| {
        check_supported(driver)?;
        let given = given.get()?;
        if array.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let in_three = ArrayDescription3d {
            width: given.width,
            height: given.height,
            format: given.format,
            channels: given.channels,
            ..ArrayDescription3d::default()
        };
        array.set(create(driver, context, in_three)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuArray3DCreate_v2(array: Out<usize>, given: In<ArrayDescription3d>) -> u32 {
    call_in_context(|driver, context| {
        check_supported(driver)?;
        let given = ArrayDescription3d {
            padding: 0,
            ..given.get()?
        };
        if array.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        array.set(create(driver, context, given)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuArrayDestroy(array: usize) -> u32 {
    call_about(array, |driver| {
        check_supported(driver)?;
        driver.captures.check_unsafe()?;
        driver.arrays.end(driver, array)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuArrayGetDescriptor_v2(into: Out<ArrayDescription>, array: usize) -> u32 {
    call_about(array, |driver| {
        check_supported(driver)?;
        let found = find(driver, array).ok_or(Code::INVALID_HANDLE)?.given;
        into.set(ArrayDescription {
            width: found.width,
            height: found.height,
            format: found.format,
            channels: found.channels,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuArray3DGetDescriptor_v2(into: Out<ArrayDescription3d>, array: usize) -> u32 {
    call_about(array, |driver| {
        check_supported(driver)?;
        into.set(find(driver, array).ok_or(Code::INVALID_HANDLE)?.given)
    })
}

/// Only arrays without memory of their own tell what they need, and there are none.
#[unsafe(no_mangle)]
extern "C" fn cuArrayGetMemoryRequirements(
    _into: Out<ArrayMemory>,
    array: usize,
    _device: i32,
) -> u32 {
    call_about(array, |driver| {
        check_supported(driver)?;
        find(driver, array).ok_or(Code::INVALID_HANDLE)?;
        Err(Code::INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetTexture1DLinearMaxWidth(
    elements: Out<usize>,
    format: u32,
    channels: u32,
    device: i32,
) -> u32 {
    call_on(device, |driver| {
        check_supported(driver)?;
        elements::element_bytes(format, channels)?;
        elements.set(LINEAR_ELEMENTS_MAX)
    })
}
