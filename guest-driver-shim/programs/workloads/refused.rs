//! Asserts that the device refuses a request with a certain status.

use core::fmt::Display;

use causeway_shim::{Refusal, Status};

/// Errors that contain a refusal of the device.
pub trait Refused: Display {
    /// Returns the device's refusal; `None` if the error has another cause.
    fn refusal(&self) -> Refusal;
}

macro_rules! refused {
    ($($name:ident)*) => {$(
        impl Refused for causeway_shim::$name {
            fn refusal(&self) -> Refusal {
                self.refusal
            }
        }
    )*};
}

refused! {
    AllocateError CommandBufferError ExportError FreeError KernelError ImportError MapError
    ModuleError QueryError RecordingError RegisterError RemapError SpaceError
}

impl Refused for Refusal {
    fn refusal(&self) -> Refusal {
        *self
    }
}

/// Asserts that `outcome` is a refusal with `status`. Returns the refusal's detail.
///
/// # Panics
/// If the request succeeded, or the refusal has another status.
#[track_caller]
pub fn refused<T>(what: &str, outcome: Result<T, impl Refused>, status: Status) -> u32 {
    match outcome {
        Ok(_) => panic!("{what}: must be refused with {status:?}, but was done"),
        Err(error) => {
            let refusal = error.refusal();
            assert!(
                refusal.status == status,
                "{what}: must be {status:?}: {error}"
            );
            refusal.detail
        }
    }
}
