//! The CUDA driver library, which is loaded and initialized once per process.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;
use parking_lot::Mutex;

use super::table::{ArrayTable, GreenTable, Table};
use super::{CudaError, code};

/// Oldest driver: CUDA 12.4, which brought `cuFuncGetParamInfo`.
const VERSION_MIN: i32 = 12_040;

/// The reason for which the process cannot use a CUDA driver.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The driver library, `libcuda.so.1`, is not installed.
    #[error(
        "the CUDA driver library (libcuda.so.1) is not installed: install NVIDIA's \
         driver, or use --gpu software"
    )]
    Missing,
    /// The driver library lacks a function that the back end calls.
    #[error(
        "the CUDA driver is too old: it lacks the function {symbol}; install a driver for CUDA \
         12.4 or later"
    )]
    Symbol {
        /// Name of the function that is missing.
        symbol: &'static str,
    },
    /// The driver supports only versions of CUDA before 12.4.
    #[error(
        "the CUDA driver is too old: it is for CUDA {major}.{minor}, and 12.4 or later is needed; \
         install a newer driver",
        major = .version / 1000,
        minor = .version % 1000 / 10
    )]
    Old {
        /// Newest version of CUDA that the driver supports, as 1000 times the major number plus 10
        /// times the minor number.
        version: i32,
    },
    /// The driver works, but finds no GPU.
    #[error("the CUDA driver finds no GPU: check that `lspci -d 10de:` lists one")]
    NoGpu,
    /// The driver cannot be initialized.
    #[error("the CUDA driver cannot be initialized: run nvidia-smi, which may tell why")]
    Init {
        /// The driver's error.
        source: CudaError,
    },
}

/// The CUDA driver of this process, loaded and initialized.
pub(crate) struct Driver {
    table: Table,
    green: Result<GreenTable, &'static str>,
    arrays: Result<ArrayTable, &'static str>,
    version: i32,
    poison: OnceLock<CudaError>,
}

impl Driver {
    /// Returns the driver of this process, which the first call loads and initializes.
    pub(crate) fn get() -> Result<&'static Self, LoadError> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());
        let _loading = LOADING.lock();
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        let driver = Self::load()?;
        Ok(DRIVER.get_or_init(|| driver))
    }

    fn load() -> Result<Self, LoadError> {
        // SAFETY: loads the library that the system's path names, which the user who set that path
        // is trusted with.
        if !unsafe { sys::is_culib_present() } {
            return Err(LoadError::Missing);
        }
        // SAFETY: as above; it is there, so this does not panic.
        let library = unsafe { sys::culib() };
        let find = |name: &str| {
            // SAFETY: only the address is taken, as that of no particular type.
            let symbol = unsafe { library.get::<*const c_void>(name.as_bytes()) };
            symbol.ok().map(|symbol| *symbol)
        };
        // Asked by hand, because a driver that is too old may lack what the table has.
        let version = version(find).ok_or(LoadError::Symbol {
            symbol: "cuDriverGetVersion",
        })?;
        if version < VERSION_MIN {
            return Err(LoadError::Old { version });
        }
        // SAFETY: the symbols are those of libcuda.
        let table = unsafe { Table::load(find) }.map_err(|symbol| LoadError::Symbol { symbol })?;
        // SAFETY: as above.
        let green = unsafe { GreenTable::load(find) };
        // SAFETY: as above.
        let arrays = unsafe { ArrayTable::load(find) };
        let driver = Self {
            table,
            green,
            arrays,
            version,
            poison: OnceLock::new(),
        };
        // SAFETY: the flags must be zero, and are.
        match unsafe { (driver.table.init)(0) } {
            0 => Ok(driver),
            code::CUDA_ERROR_NO_DEVICE => Err(LoadError::NoGpu),
            result => Err(LoadError::Init {
                source: driver.error("cuInit", result),
            }),
        }
    }

    /// Returns the newest version of CUDA that the driver supports, as 1000 times the major number
    /// plus 10 times the minor number.
    pub(crate) fn version(&self) -> i32 {
        self.version
    }

    /// Returns the error that has poisoned the process; `None` if the driver still works.
    pub(crate) fn poison(&self) -> Option<&CudaError> {
        self.poison.get()
    }

    /// Returns the entry points that every supported driver has. This never fails; the result has
    /// the form of [`Self::green_table`], because one macro calls both.
    #[allow(
        clippy::unnecessary_wraps,
        reason = "one macro calls this and `green_table`"
    )]
    pub(super) fn table(&self) -> Result<&Table, CudaError> {
        Ok(&self.table)
    }

    /// Returns the entry points for green contexts.
    ///
    /// # Errors
    /// [`CudaError`] with the name of an entry point that this driver lacks.
    pub(super) fn green_table(&self) -> Result<&GreenTable, CudaError> {
        self.green.as_ref().map_err(|symbol| CudaError {
            call: symbol,
            code: 0,
            text: String::from(
                "the driver lacks this function; leave out `sms=` of --gpu, or install a driver \
                 for CUDA 12.5 or later",
            ),
        })
    }

    /// Returns whether the driver has arrays, textures and surfaces.
    pub(crate) fn has_arrays(&self) -> bool {
        self.arrays.is_ok()
    }

    /// Returns the entry points for arrays, textures and surfaces.
    ///
    /// # Errors
    /// [`CudaError`] with the name of an entry point that this driver lacks.
    pub(super) fn array_table(&self) -> Result<&ArrayTable, CudaError> {
        self.arrays.as_ref().map_err(|symbol| CudaError {
            call: symbol,
            code: code::CUDA_ERROR_NOT_SUPPORTED,
            text: String::from("the driver lacks this function; install a newer driver"),
        })
    }

    /// Returns the error for the result `code` of the function `call`, with the driver's text.
    /// Remembers an error that poisons the process.
    #[cold]
    pub(super) fn error(&self, call: &'static str, code: u32) -> CudaError {
        let text = match (
            self.ask(self.table.get_error_name, code),
            self.ask(self.table.get_error_string, code),
        ) {
            (Some(name), Some(meaning)) => format!("{name}, {meaning}"),
            (Some(name), None) => name,
            (None, _) => String::from("an error for which the driver has no name"),
        };
        let error = CudaError { call, code, text };
        if error.is_sticky() {
            let _ = self.poison.set(error.clone());
        }
        error
    }

    /// Returns whether work is done, by the result `code` of the function `call`, which only asks
    /// how far the GPU is. Any other result means that work has failed; then the process is
    /// poisoned, even if the code is one of a newer driver that this crate does not know.
    pub(super) fn is_done(&self, call: &'static str, code: u32) -> Result<bool, CudaError> {
        match code {
            0 => Ok(true),
            code::CUDA_ERROR_NOT_READY => Ok(false),
            failed => {
                let error = self.error(call, failed);
                let _ = self.poison.set(error.clone());
                Err(error)
            }
        }
    }

    fn ask(
        &self,
        call: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
        code: u32,
    ) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: the driver stores a pointer, or leaves it null for codes that it does not know.
        let failed = unsafe { call(code, &mut text) };
        if failed != 0 || text.is_null() {
            return None;
        }
        // SAFETY: a string of the driver's own, which lives as long as the library.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    }
}

fn version(find: impl Fn(&str) -> Option<*const c_void>) -> Option<i32> {
    let address = find("cuDriverGetVersion")?;
    // SAFETY: cuDriverGetVersion has this type; it needs no cuInit.
    let call: unsafe extern "C" fn(*mut c_int) -> u32 = unsafe { std::mem::transmute(address) };
    let mut version = 0;
    // SAFETY: it stores an integer.
    let failed = unsafe { call(&mut version) };
    (failed == 0).then_some(version)
}
