//! `Debug` for types that have fields without it.

/// Implements [`Debug`](std::fmt::Debug) for a type that has fields without it: the output shows
/// the type's name, the fields that are given, and `..` for the others.
#[macro_export]
macro_rules! debug_fields {
    ($name:ident $(<$lifetime:lifetime>)? { $($field:ident),* }) => {
        impl ::std::fmt::Debug for $name $(<$lifetime>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}
