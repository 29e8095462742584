//! Functions of modules (CUDA driver API, "Execution Control": `cuFunc…`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_mediator::backend;

use crate::attributes::value;
use crate::boundary::Out;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::module::PTX_VERSION_MAX;

/// A function of a module.
pub(crate) struct Kernel {
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) function: Arc<dyn backend::Kernel>,
    /// Dynamic shared memory that a launch may ask for, in bytes.
    pub(crate) dynamic_shared_max: AtomicU32,
    pub(crate) module: usize,
    pub(crate) name: String,
    /// The name with a NUL, at an address that stays.
    pub(crate) c_name: Box<[u8]>,
}

/// The function of a handle.
pub(crate) fn find(driver: &Driver, handle: usize) -> Answer<Arc<Kernel>> {
    let found = driver.state().kernels.get(handle);
    found.ok_or(Code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(into: Out<i32>, attribute: u32, function: usize) -> u32 {
    call_in_context(|driver, _| {
        let kernel = find(driver, function)?;
        into.set(match attribute {
            0 => kernel.function.block_threads_max() as i32,
            1 => kernel.function.shared_bytes() as i32,
            2 | 3 | 7 | 10..=15 => 0,
            4 => 32,
            5 => (10 * PTX_VERSION_MAX.0 + PTX_VERSION_MAX.1) as i32,
            6 => driver.capability(),
            8 => kernel.dynamic_shared_max.load(Ordering::Relaxed) as i32,
            9 => -1,
            _ => return Err(Code::INVALID_VALUE),
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: usize, attribute: u32, given: i32) -> u32 {
    call_in_context(|driver, _| {
        let kernel = find(driver, function)?;
        let most = value(&driver.settings, 97, kernel.device).unwrap_or(0);
        let given = u32::try_from(given).map_err(|_| Code::INVALID_VALUE);
        match attribute {
            8 => {
                let sum = given?.checked_add(kernel.function.shared_bytes());
                if sum.is_none_or(|sum| sum > most.cast_unsigned()) {
                    return Err(Code::INVALID_VALUE);
                }
                kernel.dynamic_shared_max.store(given?, Ordering::Relaxed);
                Ok(())
            }
            9 => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetName(name: Out<usize>, function: usize) -> u32 {
    call_in_context(|driver, _| {
        let kernel = find(driver, function)?;
        // Valid as long as the module is loaded, as documented.
        name.set(kernel.c_name.as_ptr() as usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetModule(module: Out<usize>, function: usize) -> u32 {
    call_in_context(|driver, _| module.set(find(driver, function)?.module))
}

/// Offset and size of a parameter; one past the last is an invalid value.
#[unsafe(no_mangle)]
extern "C" fn cuFuncGetParamInfo(
    function: usize,
    index: usize,
    offset: Out<usize>,
    bytes: Out<usize>,
) -> u32 {
    call_in_context(|driver, _| {
        let kernel = find(driver, function)?;
        let parameters = kernel.function.parameters();
        let parameter = parameters.get(index).ok_or(Code::INVALID_VALUE)?;
        offset.set(usize::from(parameter.offset))?;
        bytes.set_if_wanted(usize::from(parameter.size));
        Ok(())
    })
}
