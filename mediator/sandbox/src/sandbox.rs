//! What a user wants of the sandbox.

use std::str::FromStr;

/// Whether processes confine themselves, and what happens where the host lacks a mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// They do not.
    Off,
    /// They do, with the mechanisms that the host has.
    #[default]
    On,
    /// They do, and end if the host lacks a mechanism.
    Strict,
}

impl Sandbox {
    /// All choices.
    pub const ALL: [Self; 3] = [Self::On, Self::Off, Self::Strict];

    /// Returns the text that stands for this choice on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Strict => "strict",
        }
    }
}

/// A text that names no choice.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no way to confine processes: choose on, off or strict")]
pub struct UnknownSandbox(String);

impl FromStr for Sandbox {
    type Err = UnknownSandbox;

    fn from_str(text: &str) -> Result<Self, UnknownSandbox> {
        let mut all = Self::ALL.into_iter();
        all.find(|choice| choice.name() == text)
            .ok_or_else(|| UnknownSandbox(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_each_choice_is_parsed_to_it() {
        for choice in Sandbox::ALL {
            assert_eq!(choice.name().parse(), Ok(choice));
        }
        let error = "loose".parse::<Sandbox>().unwrap_err().to_string();
        assert!(
            error.contains("loose") && error.contains("strict"),
            "{error}"
        );
    }
}
