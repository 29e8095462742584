//! Enums whose variants are words of PTX.

/// Defines an enum with the words that mean its variants, without the dot. A variant without a word
/// is what the absence of a modifier means.
macro_rules! modifiers {
    (
        $(#[$attribute:meta])*
        $name:ident { $($(#[$doc:meta])* $variant:ident $(= $($word:literal)|+)?,)* }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        #[allow(dead_code, reason = "not every enum needs all of it")]
        impl $name {
            /// All variants, in the order of their numbers.
            pub const ALL: [Self; [$(stringify!($variant)),*].len()] = [$(Self::$variant),*];

            /// Returns the variant for the PTX modifier `word`, which is without its dot; `None` if
            /// no variant has that word.
            pub fn from_modifier(word: &str) -> Option<Self> {
                match word {
                    $($($($word)|+ => Some(Self::$variant),)?)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use modifiers;
