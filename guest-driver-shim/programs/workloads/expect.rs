//! Ending a guest with the reason in plain words.

use core::fmt::Display;

/// Results and options that must hold for the guest to go on.
pub trait Required<T> {
    /// The value.
    ///
    /// # Panics
    /// With `what` and the reason if there is none.
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
            None => panic!("{what}: there is none"),
        }
    }
}
