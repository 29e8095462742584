//! Functions of the driver, found by name when they are first called: a program must start where
//! there is no driver, and be told so by its first call.
//!
//! The types of `cudarc` do not fit: its results and attributes are enumerations, and the numbers
//! here come from programs and from drivers that may be newer.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_cuda_abi::error::{Answer, Code};

use crate::error::INSUFFICIENT_DRIVER;

const LIBRARY: &CStr = c"libcuda.so.1";

/// A function of the driver.
#[derive(Debug)]
pub struct Function {
    name: &'static str,
    /// 0 until it is known.
    address: AtomicUsize,
}

impl Function {
    /// A function by its name, which ends in NUL.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            address: AtomicUsize::new(0),
        }
    }

    /// Returns the address, never 0.
    ///
    /// # Errors
    /// There is no driver, or it does not have this function.
    #[inline]
    pub fn address(&self) -> Answer<usize> {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            known => Ok(known),
        }
    }

    #[cold]
    fn find(&self) -> Answer<usize> {
        let name = CStr::from_bytes_with_nul(self.name.as_bytes());
        let name = name.map_err(|_| Code::UNKNOWN)?;
        // SAFETY: the handle is that of a library that stays loaded, the name ends in NUL.
        let address = unsafe { libc::dlsym(library()? as *mut libc::c_void, name.as_ptr()) };
        if address.is_null() {
            return Err(Code::CALL_REQUIRES_NEWER_DRIVER);
        }
        self.address.store(address as usize, Ordering::Relaxed);
        Ok(address as usize)
    }
}

/// Returns the dynamic linker's handle of the driver library. Several threads may load it at the
/// same time, which is once: a lock here could wait for the dynamic linker's, and that for this.
fn library() -> Answer<usize> {
    static HANDLE: AtomicUsize = AtomicUsize::new(0);
    let known = HANDLE.load(Ordering::Relaxed);
    if known != 0 {
        return Ok(known);
    }
    // SAFETY: the name ends in NUL. What the library does when it is loaded is the driver's.
    let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(INSUFFICIENT_DRIVER);
    }
    HANDLE.store(handle as usize, Ordering::Relaxed);
    Ok(handle as usize)
}

/// Calls a function of the driver, `driver!(cuCtxSetCurrent(context))`, and gives its result as an
/// [`Answer`]. The arguments must have exactly the types of `cuda.h` for the C ABI, with addresses
/// and handles as `usize` or `u64`; nothing checks that.
macro_rules! driver {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        static FUNCTION: $crate::driver::Function =
            $crate::driver::Function::new(concat!(stringify!($name), "\0"));
        FUNCTION.address().and_then(|address| {
            // SAFETY: the driver's function of this name has these arguments and this result
            // (cuda.h). The pointers among them are the program's, which promises what the API
            // says of them, or point to variables of this library that live through the call.
            let result = unsafe {
                let function: unsafe extern "C" fn($($crate::driver::any!($argument)),*) -> u32 =
                    std::mem::transmute(address);
                function($($argument),*)
            };
            $crate::error::answer_of(result)
        })
    }};
}

/// A type that follows from an argument.
macro_rules! any {
    ($argument:expr) => {
        _
    };
}

pub(crate) use {any, driver};
