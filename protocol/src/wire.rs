//! Describes wire structures once: as Rust types with asserted sizes, and as tables for the
//! documentation.

/// Describes a structure that guest and host exchange, for the generated documentation.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    /// Name of the structure's Rust type.
    pub name: &'static str,
    /// What the structure is for.
    pub doc: &'static str,
    /// Size of the structure in bytes.
    pub bytes: usize,
    /// Fields in the order of their offsets.
    pub fields: &'static [Field],
}

/// Describes a field of a [`Structure`].
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name of the field.
    pub name: &'static str,
    /// What the field holds.
    pub doc: &'static str,
    /// Rust type of the field.
    pub kind: &'static str,
    /// Offset of the field from the start of the structure, in bytes.
    pub offset: usize,
}

/// Describes a number with a name that guest and host exchange, for the generated documentation.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Name of the enum variant.
    pub name: &'static str,
    /// What the number means.
    pub doc: &'static str,
    /// The number that stands for the name in messages.
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
            /// All variants, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The names, numbers and meanings of all variants, for the documentation.
            pub const VALUES: &[$crate::wire::Value] = &[$($crate::wire::Value {
                name: stringify!($name),
                doc: concat!($($doc,)*),
                value: $value,
            },)*];

            /// Length of a table that is indexed by the numbers of the variants: the largest number
            /// plus one.
            pub const SLOTS: usize = {
                let mut slots = 0;
                $(if $value >= slots { slots = $value + 1; })*
                slots
            };

            /// Returns the variant with the number `value`, or `None` if there is no such variant.
            pub const fn from_wire(value: $wire) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }
        }
    };
}
pub use wire_enum;

/// Declares `#[repr(C)]` structures without padding, checks their sizes when it is compiled, and
/// lists them in the constant `STRUCTURES` of the same module.
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
                zerocopy::FromBytes, zerocopy::IntoBytes,
                zerocopy::KnownLayout, zerocopy::Immutable,
            )]
            #[repr(C)]
            pub struct $name { $($(#[doc = $fdoc])* pub $field: $type,)* }
            const _: () = assert!(size_of::<$name>() == $size);

            impl Default for $name {
                /// Returns a structure whose bytes are all zero.
                fn default() -> Self {
                    zerocopy::FromZeros::new_zeroed()
                }
            }
        )*

        /// Descriptions of all structures that this module declares for messages, for the
        /// documentation.
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
