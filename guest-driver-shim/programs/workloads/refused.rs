//! Asserting that the device refuses, and with what status.

use core::fmt::Display;

use causeway_shim::{Refusal, Status};

/// Errors that carry what the device said.
pub trait Refused: Display {
    /// What it said.
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

/// Asserts that `outcome` is a refusal with `status`; gives its detail.
///
/// # Panics
/// If the device did it, or gave another status.
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
