//! Ends a guest with a message.

use core::fmt::Display;

/// Results and options without which the guest cannot continue.
pub trait Required<T> {
    /// Returns the value.
    ///
    /// # Panics
    /// With `what` and the reason, if there is no value.
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
