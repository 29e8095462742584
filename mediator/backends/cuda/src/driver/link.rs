//! Compiles and links code to an image, so that the memory which the image takes is known before it
//! is loaded.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::CUlinkState;

use super::module::JitLog;
use super::{Context, CudaError, Driver, JitFailure};

/// `CU_JIT_INPUT_CUBIN` and `CU_JIT_INPUT_PTX`.
const CUBIN: c_uint = 0;
const PTX: c_uint = 1;
/// `CU_JIT_MAX_REGISTERS` and `CU_JIT_OPTIMIZATION_LEVEL`.
const MAX_REGISTERS: c_uint = 0;
const OPTIMIZATION_LEVEL: c_uint = 7;

/// An input of the linker. The caller has checked a cubin's headers against its length.
pub(crate) enum LinkInput<'a> {
    /// PTX text that ends with a zero.
    Ptx(&'a [u8]),
    /// Compiled code.
    Cubin(&'a [u8]),
}

/// How the compiler and the linker are to work. `None` leaves a choice to the driver.
#[derive(Clone, Copy, Default)]
pub(crate) struct LinkOptions {
    /// The most registers that a thread may have.
    pub(crate) registers_max: Option<u32>,
    /// The level of optimisation, 0 to 4.
    pub(crate) optimization: Option<u32>,
}

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

impl Linker {
    fn add(&self, input: &LinkInput<'_>) -> Result<(), CudaError> {
        let (kind, data) = match input {
            LinkInput::Ptx(text) => (PTX, text),
            LinkInput::Cubin(bytes) => (CUBIN, bytes),
        };
        // SAFETY: the data is only read, up to the zero at the end of a text, and within the
        // headers of a cubin.
        unsafe {
            self.driver.link_add_data(
                self.state,
                kind,
                data.as_ptr().cast_mut().cast(),
                data.len(),
                c"module".as_ptr(),
                0,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        }
    }
}

/// Compiles `inputs` for the GPU of `context`, and links them. Returns the image.
pub(crate) fn link(
    context: &Arc<Context>,
    inputs: &[LinkInput<'_>],
    options: LinkOptions,
) -> Result<Vec<u8>, JitFailure> {
    let mut log = JitLog::new();
    link_with(context, inputs, options, &mut log).map_err(|error| log.failure(error))
}

fn link_with(
    context: &Context,
    inputs: &[LinkInput<'_>],
    options: LinkOptions,
    log: &mut JitLog,
) -> Result<Vec<u8>, CudaError> {
    let driver = context.enter()?;
    let (keys, values) = log.options();
    let (mut keys, mut values) = (keys.to_vec(), values.to_vec());
    for (key, value) in [
        (MAX_REGISTERS, options.registers_max),
        (OPTIMIZATION_LEVEL, options.optimization),
    ] {
        if let Some(value) = value {
            keys.push(key);
            values.push(std::ptr::without_provenance_mut::<c_void>(value as usize));
        }
    }
    let mut state = std::ptr::null_mut();
    let (count, keys, values) = (keys.len() as c_uint, keys.as_mut_ptr(), values.as_mut_ptr());
    // SAFETY: the options live as long as the linker (it is dropped first), and so does the log
    // that they name.
    unsafe { driver.link_create(count, keys, values, &mut state) }?;
    let linker = Linker { driver, state };
    inputs.iter().try_for_each(|input| linker.add(input))?;
    let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: stores an image of the linker's own.
    unsafe { driver.link_complete(linker.state, &mut image, &mut bytes) }?;
    if image.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: it lives as long as the linker.
    Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec())
}
