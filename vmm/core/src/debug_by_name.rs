//! `Debug` for types with fields that have none.

/// Implements `Debug` for types such that only the name of the type is written.
#[macro_export]
macro_rules! debug_by_name {
    ($($type:ty),+) => {$(
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    )+};
}
