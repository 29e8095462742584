//! Loaded modules and their kernels.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmod_st};

use super::{Context, CudaError, Owned};

/// Size of the buffer for the log of the driver's compiler, in bytes.
const LOG_BYTES: usize = 8 << 10;
/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const LOG_OPTIONS: [c_uint; 2] = [5, 6];

/// The driver's error for an image that it did not compile or load, with the compiler's log.
#[derive(Debug)]
pub(crate) struct JitFailure {
    pub(crate) error: CudaError,
    /// Log of the driver's compiler; may be empty.
    pub(crate) log: String,
}

/// A buffer into which the driver's compiler writes its errors.
pub(super) struct JitLog(Box<[u8; LOG_BYTES]>);

impl JitLog {
    pub(super) fn new() -> Self {
        Self(Box::new([0; LOG_BYTES]))
    }

    /// Returns the keys and values of the options that make the driver write its log here. The log
    /// must live as long as the driver uses these options.
    pub(super) fn options(&mut self) -> ([c_uint; 2], [*mut c_void; 2]) {
        // One byte stays zero, whatever the driver does at the end.
        let room = LOG_BYTES - 1;
        let values = [
            self.0.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(room),
        ];
        (LOG_OPTIONS, values)
    }

    /// Returns `error` with the text that the driver has written to this log.
    pub(super) fn failure(self, error: CudaError) -> JitFailure {
        let text = CStr::from_bytes_until_nul(&self.0[..]).unwrap_or_default();
        JitFailure {
            error,
            log: text.to_string_lossy().trim().to_owned(),
        }
    }
}

/// A module that is loaded in a context, until dropped.
pub(crate) struct LoadedModule(Owned<CUmod_st>);

// SAFETY: several threads may use a module at once.
unsafe impl Sync for LoadedModule {}

/// The driver's handle of a kernel, valid as long as the kernel's module is loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelHandle(pub(super) CUfunction);

// SAFETY: kernels may be used from any thread.
unsafe impl Send for KernelHandle {}
// SAFETY: as above.
unsafe impl Sync for KernelHandle {}

impl LoadedModule {
    /// Loads `image` in `context`. The caller has checked the image's headers against its length,
    /// because the driver is not told the length.
    pub(crate) fn load(context: &Arc<Context>, image: &[u8]) -> Result<Self, JitFailure> {
        let mut log = JitLog::new();
        // A copy that ends with zeros, for readers that look a little further, and for PTX without
        // one.
        let mut padded = Vec::with_capacity(image.len() + 64);
        padded.extend_from_slice(image);
        padded.resize(image.len() + 64, 0);
        let (mut keys, mut values) = log.options();
        let (keys, values) = (keys.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: the image lies in memory of our own as far as its headers say; stores a new
        // module.
        let loaded = unsafe {
            Owned::create(context, |driver, raw| {
                driver.module_load_data_ex(raw, padded.as_ptr().cast(), 2, keys, values)
            })
        };
        loaded.map(Self).map_err(|error| log.failure(error))
    }

    /// Returns the handles of all kernels of this module.
    pub(crate) fn functions(&self) -> Result<Vec<KernelHandle>, CudaError> {
        let (driver, module) = (self.0.context.enter()?, self.0.raw);
        let mut count = 0;
        // SAFETY: stores a count.
        unsafe { driver.module_get_function_count(&mut count, module) }?;
        let mut raw: Vec<CUfunction> = vec![std::ptr::null_mut(); count as usize];
        // SAFETY: the vector has room for `count` functions.
        unsafe { driver.module_enumerate_functions(raw.as_mut_ptr(), count, module) }?;
        let functions = raw.into_iter().filter(|raw| !raw.is_null());
        Ok(functions.map(KernelHandle).collect())
    }

    /// Returns the handle of the kernel with this name.
    ///
    /// # Errors
    /// The driver's error if the module has no such kernel, or if the name has a zero byte.
    pub(crate) fn function(&self, name: &str) -> Result<KernelHandle, CudaError> {
        let driver = self.0.context.enter()?;
        let name = CString::new(name).map_err(|_| CudaError {
            call: "cuModuleGetFunction",
            code: super::code::CUDA_ERROR_NOT_FOUND,
            text: String::from("a name with a zero byte"),
        })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: stores a kernel.
        unsafe { driver.module_get_function(&mut raw, self.0.raw, name.as_ptr()) }?;
        Ok(KernelHandle(raw))
    }

    /// Returns the address and the size in bytes of the variable with this name; `None` if the
    /// module has no such variable.
    pub(crate) fn variable(&self, name: &str) -> Result<Option<(u64, u64)>, CudaError> {
        let Ok(name) = CString::new(name) else {
            return Ok(None);
        };
        let driver = self.0.context.enter()?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: stores an address and a size.
        let found = unsafe {
            driver.module_get_global(&mut address, &mut bytes, self.0.raw, name.as_ptr())
        };
        match found {
            Ok(()) => Ok(Some((address, bytes as u64))),
            Err(error) if error.code == super::code::CUDA_ERROR_NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the name of a kernel of this module.
    pub(crate) fn name(&self, function: KernelHandle) -> Result<String, CudaError> {
        let driver = self.0.context.enter()?;
        let mut name = std::ptr::null();
        // SAFETY: stores a string of the module's own.
        unsafe { driver.func_get_name(&mut name, function.0) }?;
        if name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: it lives as long as the module.
        Ok(unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned())
    }

    /// Returns an attribute, given by its number in `CUfunction_attribute`, of a kernel of this
    /// module. A negative value is returned as 0.
    pub(crate) fn attribute(
        &self,
        function: KernelHandle,
        attribute: u32,
    ) -> Result<u32, CudaError> {
        let value = self.signed_attribute(function, attribute)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Returns an attribute as [`Self::attribute`] does, also if its value is negative.
    pub(crate) fn signed_attribute(
        &self,
        function: KernelHandle,
        attribute: u32,
    ) -> Result<i32, CudaError> {
        let driver = self.0.context.enter()?;
        let mut value: c_int = 0;
        // SAFETY: stores an integer.
        unsafe { driver.func_get_attribute(&mut value, attribute, function.0) }?;
        Ok(value)
    }

    /// Sets an attribute, given by its number in `CUfunction_attribute`, of a kernel of this
    /// module.
    pub(crate) fn set_attribute(
        &self,
        function: KernelHandle,
        attribute: u32,
        value: u32,
    ) -> Result<(), CudaError> {
        let driver = self.0.context.enter()?;
        let value = c_int::try_from(value).unwrap_or(c_int::MAX);
        // SAFETY: an integer.
        unsafe { driver.func_set_attribute(function.0, attribute, value) }
    }

    /// Returns offset and size, in bytes, of parameter number `index` of a kernel of this module;
    /// `None` if the kernel has not as many parameters.
    pub(crate) fn parameter(
        &self,
        function: KernelHandle,
        index: usize,
    ) -> Result<Option<(usize, usize)>, CudaError> {
        let driver = self.0.context.enter()?;
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: stores two sizes.
        let found =
            unsafe { driver.func_get_param_info(function.0, index, &mut offset, &mut bytes) };
        match found {
            Ok(()) => Ok(Some((offset, bytes))),
            // What is documented for an index beyond the last.
            Err(error) if error.code == super::code::CUDA_ERROR_INVALID_VALUE => Ok(None),
            Err(error) => Err(error),
        }
    }
}
