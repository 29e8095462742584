//! Describes wire structures once: as Rust types with asserted sizes, and as tables for the
//! documentation.

/// A structure on the wire, as the documentation shows it.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    /// Name of the Rust type.
    pub name: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Size in bytes.
    pub bytes: usize,
    /// Fields in order.
    pub fields: &'static [Field],
}

/// A field of a [`Structure`].
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// What it holds.
    pub doc: &'static str,
    /// Rust type.
    pub kind: &'static str,
    /// Offset in bytes.
    pub offset: usize,
}

/// A named wire value, as the documentation shows it.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Name of the Rust variant.
    pub name: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Value on the wire.
    pub value: u64,
}

/// Declares an enum of wire values: how it is decoded, all its values, and their documentation.
#[macro_export]
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $enum:ident: $wire:ident {
        $($(#[doc = $doc:literal])* $name:ident = $value:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($wire)]
        pub enum $enum { $($(#[doc = $doc])* $name = $value,)* }

        impl $enum {
            /// Every value, in the order of the declaration.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The values with their meaning, for the documentation.
            pub const VALUES: &[$crate::wire::Value] = &[$($crate::wire::Value {
                name: stringify!($name),
                doc: concat!($($doc,)*),
                value: $value,
            },)*];

            /// Length of a table that is indexed by the wire value.
            pub const SLOTS: usize = {
                let mut slots = 0;
                $(if $value >= slots { slots = $value + 1; })*
                slots
            };

            /// Decodes a wire value. `None`: the value has no meaning.
            pub const fn from_wire(value: $wire) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }
        }
    };
}
pub use wire_enum;

/// Declares `#[repr(C)]` structures without padding, asserts their sizes, and lists them in
/// `STRUCTURES`.
///
/// The crate that uses this macro must depend on `zerocopy`.
#[macro_export]
macro_rules! structures {
    ($($(#[doc = $doc:literal])* pub struct $name:ident {
        $($(#[doc = $fdoc:literal])* pub $field:ident: $type:ty,)*
    } = $size:literal)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(
                Clone, Copy, Debug, PartialEq, Eq,
                zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
            )]
            #[repr(C)]
            pub struct $name { $($(#[doc = $fdoc])* pub $field: $type,)* }
            const _: () = assert!(size_of::<$name>() == $size);

            impl Default for $name {
                /// All bytes zero.
                fn default() -> Self {
                    zerocopy::FromZeros::new_zeroed()
                }
            }
        )*

        /// The structures of this module, for the documentation.
        pub const STRUCTURES: &[$crate::wire::Structure] = &[
            $($crate::wire::Structure {
                name: stringify!($name),
                doc: concat!($($doc,)*),
                bytes: $size,
                fields: &[$($crate::wire::Field {
                    name: stringify!($field),
                    doc: concat!($($fdoc,)*),
                    kind: stringify!($type),
                    offset: core::mem::offset_of!($name, $field),
                },)*],
            },)*
        ];
    };
}
pub use structures;
