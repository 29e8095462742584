//! Compiles PTX to an image, so that the memory which the image takes is known before it is loaded.

use std::ffi::c_uint;
use std::sync::Arc;

use cudarc::driver::sys::CUlinkState;

use super::module::JitLog;
use super::{Context, CudaError, Driver, JitFailure};

/// `CU_JIT_INPUT_PTX`.
const PTX: c_uint = 1;

/// The driver's linker, until dropped.
struct Linker {
    driver: &'static Driver,
    state: CUlinkState,
}

impl Drop for Linker {
    fn drop(&mut self) {
        // SAFETY: the state is live, and not used again.
        if let Err(e) = unsafe { self.driver.link_destroy(self.state) } {
            log::debug!("the CUDA driver did not release a linker: {e}");
        }
    }
}

/// Compiles `ptx`, which ends with a zero, for the GPU of `context`. Returns the compiled image.
pub(crate) fn link_ptx(context: &Arc<Context>, ptx: &[u8]) -> Result<Vec<u8>, JitFailure> {
    let mut log = JitLog::new();
    link(context, ptx, &mut log).map_err(|error| log.failure(error))
}

fn link(context: &Context, ptx: &[u8], log: &mut JitLog) -> Result<Vec<u8>, CudaError> {
    let driver = context.enter()?;
    let (mut keys, mut values) = log.options();
    let mut state = std::ptr::null_mut();
    // SAFETY: the options live as long as the linker (it is dropped first), and so does the log
    // that they name.
    unsafe { driver.link_create(2, keys.as_mut_ptr(), values.as_mut_ptr(), &mut state) }?;
    let linker = Linker { driver, state };
    // SAFETY: the text is only read, up to the zero at its end.
    unsafe {
        driver.link_add_data(
            linker.state,
            PTX,
            ptx.as_ptr().cast_mut().cast(),
            ptx.len(),
            c"module".as_ptr(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    }?;
    let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: stores an image of the linker's own.
    unsafe { driver.link_complete(linker.state, &mut image, &mut bytes) }?;
    if image.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: it lives as long as the linker.
    Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec())
}
