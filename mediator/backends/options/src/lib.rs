//! How a back end reads its part of `--gpu BACKEND[:DEVICE],KEY=VALUE,…`.
//!
//! Each back end has a type for its options that implements [`Options`]: a table of [`Key`]s, from
//! which parsing, the command's help and the list in error messages are made. The command adds a
//! table of the keys that all back ends have.

use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// One key of `--gpu`, which sets a field of `O`.
pub struct Key<O> {
    /// The text before the equals sign.
    pub name: &'static str,
    /// The values as the help shows them, such as `N` or `none|process`.
    pub values: &'static str,
    /// What the key sets, as the help says it.
    pub about: &'static str,
    /// Checks a value and stores it.
    pub set: fn(&mut O, Value<'_>) -> Result<(), OptionError>,
}

impl<O> fmt::Debug for Key<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The options of one back end.
pub trait Options: Sized + 'static {
    /// Name of the back end, as `--gpu` has it.
    const BACK_END: &'static str;
    /// The keys that only this back end has.
    const KEYS: &'static [Key<Self>];

    /// Returns the defaults for a device, which is the text after the colon if there is one.
    ///
    /// # Errors
    /// [`OptionError::Value`]: the back end has no such device, or needs one.
    fn new(device: Option<&str>) -> Result<Self, OptionError>;

    /// Returns the options for a device and pairs of key and value, as typed.
    ///
    /// # Errors
    /// [`OptionError::Unknown`] for a key that is not in [`Self::KEYS`]; otherwise as [`Self::new`]
    /// and the keys refuse a value.
    fn parse(device: Option<&str>, pairs: &[(&str, &str)]) -> Result<Self, OptionError> {
        let mut options = Self::new(device)?;
        for (name, text) in pairs {
            if !set(Self::KEYS, &mut options, name, text)? {
                return Err(OptionError::Unknown {
                    key: (*name).to_owned(),
                    back_end: Self::BACK_END,
                    known: Self::KEYS.iter().map(|key| key.name).collect(),
                });
            }
        }
        Ok(options)
    }
}

/// Sets the key `name` of `options` if `keys` has it, and returns whether it has.
///
/// # Errors
/// [`OptionError::Value`]: the key does not take this value.
pub fn set<O>(
    keys: &'static [Key<O>],
    options: &mut O,
    name: &str,
    text: &str,
) -> Result<bool, OptionError> {
    let Some(key) = keys.iter().find(|key| key.name == name) else {
        return Ok(false);
    };
    let key_name = key.name;
    (key.set)(options, Value { key_name, text })?;
    Ok(true)
}

/// Returns one line of help for each key of a table.
pub fn help<O>(keys: &[Key<O>]) -> String {
    let mut lines = String::new();
    for Key {
        name,
        values,
        about,
        ..
    } in keys
    {
        // Writing to a string does not fail.
        let _ = write!(lines, "\n  {name}={values}: {about}");
    }
    lines
}

/// The text after an equals sign, with the key before it.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    key_name: &'static str,
    text: &'a str,
}

impl<'a> Value<'a> {
    /// Returns the text after the colon of `--gpu BACKEND:DEVICE` as the value of a key with the
    /// back end's name.
    pub fn device(back_end: &'static str, text: &'a str) -> Self {
        Self {
            key_name: back_end,
            text,
        }
    }

    /// Returns the value as a type that can be parsed.
    ///
    /// # Errors
    /// [`OptionError::Value`] with `expected`: the type does not take it.
    pub fn parse<T: FromStr>(self, expected: &str) -> Result<T, OptionError> {
        self.text.parse().map_err(|_| self.invalid(expected))
    }

    /// Returns the value as a number.
    ///
    /// # Errors
    /// [`OptionError::Value`]: it is no number, or out of `range`.
    pub fn number(self, range: RangeInclusive<u32>) -> Result<u32, OptionError> {
        let number = self.text.parse().ok().filter(|n| range.contains(n));
        number.ok_or_else(|| self.invalid(format!("{} to {}", range.start(), range.end())))
    }

    /// Returns a size in bytes that is written `512`, `512MiB` or `4GiB`, where a plain number
    /// counts MiB.
    ///
    /// # Errors
    /// [`OptionError::Value`]: it is no size, or out of `range_mib`, which counts MiB.
    pub fn mebibytes(self, range_mib: RangeInclusive<u64>) -> Result<u64, OptionError> {
        let (digits, unit_mib) =
            match (self.text.strip_suffix("GiB"), self.text.strip_suffix("MiB")) {
                (Some(digits), _) => (digits, 1024),
                (None, Some(digits)) => (digits, 1),
                (None, None) => (self.text, 1),
            };
        let size_mib = digits.parse::<u64>().ok();
        let size_mib = size_mib.and_then(|size| size.checked_mul(unit_mib));
        let size_mib = size_mib.filter(|size| range_mib.contains(size));
        size_mib.map(|size| size << 20).ok_or_else(|| {
            let (least, most) = (range_mib.start(), range_mib.end());
            self.invalid(format!(
                "{least} to {most} (MiB; or with suffix MiB or GiB)"
            ))
        })
    }

    /// Returns what the value means, by a table of words and meanings.
    ///
    /// # Errors
    /// [`OptionError::Value`]: it is none of the words.
    pub fn choice<T: Copy>(self, words: &[(&str, T)]) -> Result<T, OptionError> {
        let found = words.iter().find(|(word, _)| *word == self.text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.invalid(words.join(" or "))
        })
    }

    /// Returns the error for this value; `expected` says which values are valid.
    pub fn invalid(self, expected: impl Into<String>) -> OptionError {
        OptionError::Value {
            key: self.key_name,
            value: if self.text.is_empty() {
                "``"
            } else {
                self.text
            }
            .to_owned(),
            expected: expected.into(),
        }
    }
}

/// Why the keys or the device of `--gpu` are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// A key does not take the value.
    #[error("invalid value {value} for --gpu {key}: {expected}")]
    Value {
        /// The key, or the back end if its device is meant.
        key: &'static str,
        /// The value as typed.
        value: String,
        /// The values that the key takes.
        expected: String,
    },
    /// The back end does not have the key.
    #[error("unknown key `{key}` for --gpu {back_end}: its keys are {}", .known.join(", "))]
    Unknown {
        /// The key as typed.
        key: String,
        /// The back end.
        back_end: &'static str,
        /// The keys that it has.
        known: Vec<&'static str>,
    },
}

impl OptionError {
    /// Adds the keys that all back ends have to those that an unknown key's error lists.
    pub fn with_known<O>(mut self, keys: &[Key<O>]) -> Self {
        if let Self::Unknown { known, .. } = &mut self {
            known.extend(keys.iter().map(|key| key.name));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Fruit {
        pieces: u32,
        weight_bytes: u64,
        ripe: bool,
    }

    impl Options for Fruit {
        const BACK_END: &'static str = "fruit";
        const KEYS: &'static [Key<Self>] = &[
            Key {
                name: "pieces",
                values: "N",
                about: "how many",
                set: |fruit, value| value.number(1..=9).map(|n| fruit.pieces = n),
            },
            Key {
                name: "weight",
                values: "MIB",
                about: "how heavy",
                set: |fruit, value| value.mebibytes(1..=4096).map(|n| fruit.weight_bytes = n),
            },
            Key {
                name: "state",
                values: "raw|ripe",
                about: "how ripe",
                set: |fruit, value| {
                    let ripe = value.choice(&[("raw", false), ("ripe", true)])?;
                    fruit.ripe = ripe;
                    Ok(())
                },
            },
        ];

        fn new(device: Option<&str>) -> Result<Self, OptionError> {
            match device {
                None => Ok(Self::default()),
                Some(device) => Err(Value::device("fruit", device).invalid("none")),
            }
        }
    }

    #[test]
    fn each_kind_of_value_is_read() {
        let pairs = [("pieces", "9"), ("weight", "4GiB"), ("state", "ripe")];
        let fruit = Fruit {
            pieces: 9,
            weight_bytes: 4 << 30,
            ripe: true,
        };
        assert_eq!(Fruit::parse(None, &pairs), Ok(fruit));
        for text in ["64", "64MiB"] {
            let fruit = Fruit::parse(None, &[("weight", text)]).unwrap();
            assert_eq!(fruit.weight_bytes, 64 << 20);
        }
    }

    #[test]
    fn each_refusal_names_the_value_and_what_is_valid() {
        let size = "1 to 4096 (MiB; or with suffix MiB or GiB)";
        for (key, value, message) in [
            (
                "pieces",
                "0",
                "invalid value 0 for --gpu pieces: 1 to 9".to_owned(),
            ),
            (
                "pieces",
                "10",
                "invalid value 10 for --gpu pieces: 1 to 9".to_owned(),
            ),
            (
                "pieces",
                "",
                "invalid value `` for --gpu pieces: 1 to 9".to_owned(),
            ),
            (
                "weight",
                "0",
                format!("invalid value 0 for --gpu weight: {size}"),
            ),
            (
                "weight",
                "5GiB",
                format!("invalid value 5GiB for --gpu weight: {size}"),
            ),
            (
                "weight",
                "64MB",
                format!("invalid value 64MB for --gpu weight: {size}"),
            ),
            (
                "state",
                "old",
                "invalid value old for --gpu state: raw or ripe".to_owned(),
            ),
            (
                "colour",
                "red",
                "unknown key `colour` for --gpu fruit: its keys are pieces, weight, state"
                    .to_owned(),
            ),
        ] {
            let error = Fruit::parse(None, &[(key, value)]).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let huge = format!("{}GiB", u64::MAX);
        assert!(Fruit::parse(None, &[("weight", &huge)]).is_err());
        let error = Fruit::parse(Some("7"), &[]).unwrap_err().to_string();
        assert_eq!(error, "invalid value 7 for --gpu fruit: none");
    }

    #[test]
    fn help_has_a_line_for_each_key() {
        let help = help(Fruit::KEYS);
        assert!(help.starts_with("\n  pieces=N: how many\n  weight=MIB: how heavy"));
    }
}
