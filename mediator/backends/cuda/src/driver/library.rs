//! The driver library, which is loaded and initialized once per process.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;
use parking_lot::Mutex;

use super::table::{GreenTable, Table};
use super::{CudaError, code};

/// Oldest driver: CUDA 12.4, which brought `cuFuncGetParamInfo`.
const VERSION_MIN: i32 = 12_040;

/// Why there is no usable CUDA driver.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The library is not installed.
    #[error(
        "the CUDA driver library (libcuda.so.1) is not installed: install NVIDIA's driver, or use --gpu software"
    )]
    Missing,
    /// The library lacks an entry point.
    #[error("the CUDA driver is too old: it has no {symbol} (CUDA 12.4 or later is needed)")]
    Symbol {
        /// Its name.
        symbol: &'static str,
    },
    /// The driver is for an older version of CUDA.
    #[error("the CUDA driver is too old: it is for CUDA {}.{}, and 12.4 or later is needed", .version / 1000, .version % 1000 / 10)]
    Old {
        /// 1000 times the major, 10 times the minor version.
        version: i32,
    },
    /// The driver has no GPU.
    #[error("the CUDA driver finds no GPU: check that there is one with lspci -d 10de:")]
    NoGpu,
    /// The driver cannot be initialized.
    #[error("the CUDA driver cannot be initialized: nvidia-smi may say more")]
    Init {
        /// Its error.
        source: CudaError,
    },
}

/// The driver, initialized.
pub(crate) struct Driver {
    table: Table,
    green: Result<GreenTable, &'static str>,
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
        let init = find("cuInit").ok_or(LoadError::Symbol { symbol: "cuInit" })?;
        // SAFETY: cuInit has this type.
        let init: unsafe extern "C" fn(u32) -> u32 = unsafe { std::mem::transmute(init) };
        let driver = Self {
            table,
            green,
            version,
            poison: OnceLock::new(),
        };
        // SAFETY: the flags must be zero, and are.
        match unsafe { init(0) } {
            0 => Ok(driver),
            code::CUDA_ERROR_NO_DEVICE => Err(LoadError::NoGpu),
            result => Err(LoadError::Init {
                source: driver.error("cuInit", result),
            }),
        }
    }

    /// 1000 times the major and 10 times the minor version of CUDA that it is for.
    pub(crate) fn version(&self) -> i32 {
        self.version
    }

    /// Returns the error after which nothing works any more, if there was one.
    pub(crate) fn poison(&self) -> Option<&CudaError> {
        self.poison.get()
    }

    /// Returns the entry points.
    #[allow(clippy::unnecessary_wraps)]
    pub(super) fn table(&self) -> Result<&Table, CudaError> {
        Ok(&self.table)
    }

    /// Those for green contexts.
    pub(super) fn green_table(&self) -> Result<&GreenTable, CudaError> {
        self.green.as_ref().map_err(|symbol| CudaError {
            call: symbol,
            code: 0,
            text: String::from(
                "the driver does not have it: multiprocessors can be limited with CUDA 12.5 or later",
            ),
        })
    }

    /// What a result means; one that poisons the process is kept.
    #[cold]
    pub(super) fn error(&self, call: &'static str, code: u32) -> CudaError {
        let text = match (
            self.ask(self.table.get_error_name, code),
            self.ask(self.table.get_error_string, code),
        ) {
            (Some(name), Some(meaning)) => format!("{name}, {meaning}"),
            (Some(name), None) => name,
            (None, _) => String::from("an error that the driver has no name for"),
        };
        let error = CudaError { call, code, text };
        if error.is_sticky() {
            let _ = self.poison.set(error.clone());
        }
        error
    }

    /// Returns whether work is done, by the result `code` of `call`, which only asks how far it is.
    /// Any other result means that work has failed, and the documentation of such errors is that
    /// the process must be ended. New drivers may have codes for it that are not known here.
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
