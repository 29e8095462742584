//! Ends a guest with a message.

use core::fmt::Display;

/// Unwraps results and options without which the guest cannot continue.
pub trait Required<T> {
    /// Returns the value.
    ///
    /// # Panics
    /// If there is no value. The message has `what`, which names the value, and the reason.
    fn required(self, what: &str) -> T;
}

impl<T, E: Display> Required<T> for Result<T, E> {
    #[track_caller]
    fn required(self, what: &str) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

impl<T> Required<T> for Option<T> {
    #[track_caller]
    fn required(self, what: &str) -> T {
        match self {
            Some(value) => value,
            None => panic!("{what}: not available"),
        }
    }
}
