//! Functions and kernels, which are the same here (CUDA driver API, "Execution Control": `cuFunc…`,
//! and "Library Management": `cuKernel…`).

use std::ffi::c_char;
use std::sync::Arc;

use crate::boundary::Out;
use crate::device;
use crate::driver::{Driver, call_in_context, call_on_unless_faulted, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::kernel::{self, Kernel, attribute};

/// Attribute of devices: shared memory that a block may opt in for, in bytes.
const SHARED_BYTES_MAX: u32 = 97;
/// `CU_FUNCTION_LOADING_STATE_LOADED`
const LOADED: u32 = 1;

/// Attributes of functions: sides of the clusters that a kernel requires.
const CLUSTER_SIDES: std::ops::RangeInclusive<u32> = 11..=13;

fn get_attribute(driver: &Driver, into: Out<i32>, number: u32, function: usize) -> Answer {
    into.set(kernel::find(driver, function)?.attribute(number)?)
}

fn set_attribute(driver: &Driver, function: usize, number: u32, value: i32) -> Answer {
    let kernel = kernel::find(driver, function)?;
    if CLUSTER_SIDES.contains(&number) && kernel.requires_clusters() {
        return Err(Code::NOT_PERMITTED);
    }
    let shared_max = device::attribute(driver, SHARED_BYTES_MAX).unwrap_or(0);
    let shared = kernel.attribute(attribute::SHARED_BYTES as u32)?;
    check_value(number, value, shared_max - shared)?;
    kernel.set_attribute(number as usize, value);
    Ok(())
}

/// Checks a value that an attribute is to get. A launch may have `dynamic_max` bytes of dynamic
/// shared memory.
fn check_value(number: u32, value: i32, dynamic_max: i32) -> Answer {
    let allowed = match number {
        8 => 0..=dynamic_max,
        9 => -1..=100,
        // Larger clusters can only be compiled in.
        _ if CLUSTER_SIDES.contains(&number) && value > 1 => return Err(Code::NOT_SUPPORTED),
        11..=14 => 0..=1,
        // Policy for scheduling clusters.
        15 => 0..=2,
        _ => return Err(Code::INVALID_VALUE),
    };
    match allowed.contains(&value) {
        true => Ok(()),
        false => Err(Code::INVALID_VALUE),
    }
}

/// Returns the function of a handle, which is to be given.
pub(crate) fn find_given(driver: &Driver, handle: usize) -> Answer<Arc<Kernel>> {
    match handle {
        0 => Err(Code::INVALID_VALUE),
        handle => kernel::find(driver, handle),
    }
}

fn put_parameter(kernel: &Kernel, index: usize, offset: Out<usize>, bytes: Out<usize>) -> Answer {
    let parameter = kernel.layout.get(index).ok_or(Code::INVALID_VALUE)?;
    offset.set(usize::from(parameter.offset))?;
    bytes.set_if_wanted(usize::from(parameter.size));
    Ok(())
}

fn set_cache(driver: &Driver, function: usize, configuration: u32) -> Answer {
    kernel::find(driver, function)?;
    match configuration {
        0..=3 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(into: Out<i32>, attribute: u32, function: usize) -> u32 {
    call_in_context(|driver, _| get_attribute(driver, into, attribute, function))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: usize, attribute: u32, value: i32) -> u32 {
    call_in_context(|driver, _| set_attribute(driver, function, attribute, value))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetName(name: Out<*const c_char>, function: usize) -> u32 {
    call_in_context(|driver, _| name.set(find_given(driver, function)?.name()))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetModule(module: Out<usize>, function: usize) -> u32 {
    call_in_context(|driver, _| module.set(find_given(driver, function)?.owner.module))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetParamInfo(
    function: usize,
    index: usize,
    offset: Out<usize>,
    bytes: Out<usize>,
) -> u32 {
    call_in_context(|driver, _| {
        let kernel = find_given(driver, function)?;
        put_parameter(&kernel, index, offset, bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncLoad(function: usize) -> u32 {
    call_in_context(|driver, _| kernel::find(driver, function).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncIsLoaded(state: Out<u32>, function: usize) -> u32 {
    call_in_context(|driver, _| {
        kernel::find(driver, function)?;
        state.set(LOADED)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetCacheConfig(function: usize, configuration: u32) -> u32 {
    call_in_context(|driver, _| set_cache(driver, function, configuration))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetSharedMemConfig(function: usize, configuration: u32) -> u32 {
    call_in_context(|driver, _| {
        kernel::find(driver, function)?;
        match configuration {
            0..=2 => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelGetFunction(function: Out<usize>, kernel: usize) -> u32 {
    call_in_context(|driver, _| {
        kernel::find(driver, kernel)?;
        function.set(kernel)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelGetName(name: Out<*const c_char>, kernel: usize) -> u32 {
    call_unless_faulted(|driver| name.set(find_given(driver, kernel)?.name()))
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelGetLibrary(library: Out<usize>, kernel: usize) -> u32 {
    call_unless_faulted(|driver| match kernel::find(driver, kernel)?.owner.library {
        0 => Err(Code::INVALID_HANDLE),
        of_kernel => library.set(of_kernel),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelGetParamInfo(
    kernel: usize,
    index: usize,
    offset: Out<usize>,
    bytes: Out<usize>,
) -> u32 {
    call_in_context(|driver, _| {
        let kernel = find_given(driver, kernel)?;
        put_parameter(&kernel, index, offset, bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelGetAttribute(
    into: Out<i32>,
    attribute: u32,
    kernel: usize,
    device: i32,
) -> u32 {
    call_on_unless_faulted(device, |driver| {
        get_attribute(driver, into, attribute, kernel)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelSetAttribute(attribute: u32, value: i32, kernel: usize, device: i32) -> u32 {
    call_on_unless_faulted(device, |driver| {
        set_attribute(driver, kernel, attribute, value)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelSetCacheConfig(kernel: usize, configuration: u32, device: i32) -> u32 {
    call_on_unless_faulted(device, |driver| set_cache(driver, kernel, configuration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_take_only_values_in_their_range() {
        for (number, value, answer) in [
            (8, 1000, Ok(())),
            (8, 1001, Err(Code::INVALID_VALUE)),
            (8, -1, Err(Code::INVALID_VALUE)),
            (9, -1, Ok(())),
            (9, 101, Err(Code::INVALID_VALUE)),
            (11, 1, Ok(())),
            (12, 2, Err(Code::NOT_SUPPORTED)),
            (14, 1, Ok(())),
            (15, 3, Err(Code::INVALID_VALUE)),
            (0, 1, Err(Code::INVALID_VALUE)),
            (10, 1, Err(Code::INVALID_VALUE)),
            (16, 1, Err(Code::INVALID_VALUE)),
        ] {
            assert_eq!(check_value(number, value, 1000), answer, "{number} {value}");
        }
    }
}
