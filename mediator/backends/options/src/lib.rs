//! How a back end reads its part of `--gpu BACKEND[:DEVICE],KEY=VALUE,…`.
//!
//! Each back end has a type for its options that implements [`Options`]: a table of [`Key`]s, from
//! which parsing, the command's help and the list in error messages are made. The command adds a
//! table of the keys that all back ends have.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Describes one key of `--gpu`: its name, its help, and how it changes the options `O`.
#[derive(Debug)]
pub struct Key<O> {
    /// What the user types before the equals sign.
    pub name: &'static str,
    /// Valid values in the form that the help shows, such as `N` or `none|process`.
    pub values: &'static str,
    /// Explanation of the key, as the help shows it.
    pub about: &'static str,
    /// Function that checks a value of the key and stores it in the options.
    pub set: fn(&mut O, Value<'_>) -> Result<(), OptionError>,
}

/// Options of one back end, which the user types as `--gpu BACKEND[:DEVICE],KEY=VALUE,…`.
pub trait Options: Sized + 'static {
    /// Name of the back end, as users type it after `--gpu`.
    const BACK_END: &'static str;
    /// Keys that only this back end accepts.
    const KEYS: &'static [Key<Self>];

    /// Returns the default options for `device`, the text after the colon of `--gpu
    /// BACKEND:DEVICE`; `None` means that the user typed no device.
    ///
    /// # Errors
    /// [`OptionError::Value`] if the back end has no such device, or if it needs one and `device`
    /// is `None`.
    fn new(device: Option<&str>) -> Result<Self, OptionError>;

    /// Returns the options for `device` (see [`Self::new`]) after it has set the keys in `pairs`.
    /// Each pair is a key and its value, as the user typed them.
    ///
    /// # Errors
    /// [`OptionError::Unknown`] if a key is not in [`Self::KEYS`]. [`OptionError::Value`] if the
    /// back end refuses the device, or if a value is not valid for its key.
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

/// Looks for the key `name` in `keys` and, if it is there, sets it in `options` to the value
/// `text`. Returns whether `keys` has the key.
///
/// # Errors
/// [`OptionError::Value`] if the value is not valid for the key.
pub fn set<O>(
    keys: &'static [Key<O>],
    options: &mut O,
    name: &str,
    text: &str,
) -> Result<bool, OptionError> {
    let Some(key) = keys.iter().find(|key| key.name == name) else {
        return Ok(false);
    };
    key.apply(options, text)?;
    Ok(true)
}

impl<O> Key<O> {
    /// Sets the key in `options` to the value `text`.
    ///
    /// # Errors
    /// [`OptionError::Value`] if the value is not valid for the key.
    pub fn apply(&self, options: &mut O, text: &str) -> Result<(), OptionError> {
        let key_name = self.name;
        (self.set)(options, Value { key_name, text })
    }
}

/// Returns the help for keys: for each key, a line break and then a line with its name,
/// its values and its explanation.
pub fn help<'k, O: 'k>(keys: impl IntoIterator<Item = &'k Key<O>>) -> String {
    let mut lines = String::new();
    for key in keys {
        // Writing to a string does not fail.
        let _ = write!(lines, "\n  {}={}: {}", key.name, key.values, key.about);
    }
    lines
}

/// Suffixes of a size, each with the number of MiB that it stands for.
const SIZE_SUFFIXES: [(&str, u64); 6] = [
    ("TiB", 1 << 20),
    ("GiB", 1 << 10),
    ("MiB", 1),
    ("T", 1 << 20),
    ("G", 1 << 10),
    ("M", 1),
];

/// How to write a size, for messages and help.
pub const SIZE_FORM: &str = "in MiB, or with suffix M, G or T";

/// Parses a size as all options of the command take it, and returns it in MiB. A plain number is a
/// number of MiB; the suffixes `M`, `G`, `T`, `MiB`, `GiB` and `TiB` name another unit, in upper or
/// lower case. Returns `None` if `text` is not a size, or if the size does not fit 64 bits.
///
/// # Examples
/// ```
/// use causeway_backend_options::size_mib;
///
/// assert_eq!(size_mib("4G"), Some(4096));
/// assert_eq!(size_mib("512"), Some(512));
/// assert_eq!(size_mib("4GB"), None);
/// ```
pub fn size_mib(text: &str) -> Option<u64> {
    let unit = SIZE_SUFFIXES.iter().find_map(|(suffix, unit_mib)| {
        let (digits, end) = text.split_at_checked(text.len().checked_sub(suffix.len())?)?;
        end.eq_ignore_ascii_case(suffix)
            .then_some((digits, *unit_mib))
    });
    let (digits, unit_mib) = unit.unwrap_or((text, 1));
    // `parse` alone would take a sign, too.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| is_number)?;
    number.checked_mul(unit_mib)
}

/// A value that the user typed, with the name of its key for error messages.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    key_name: &'static str,
    text: &'a str,
}

impl<'a> Value<'a> {
    /// Wraps `text`, the device in `--gpu BACKEND:DEVICE`, so that it can be checked like the value
    /// of a key. In error messages, `back_end` takes the place of the key's name.
    pub fn device(back_end: &'static str, text: &'a str) -> Self {
        Self {
            key_name: back_end,
            text,
        }
    }

    /// Parses the value as a `T`.
    ///
    /// # Errors
    /// [`OptionError::Value`] if the value does not parse. Its message contains `expected`, which
    /// tells the user what is valid.
    pub fn parse<T: FromStr>(self, expected: &str) -> Result<T, OptionError> {
        self.text.parse().map_err(|_| self.invalid(expected))
    }

    /// Parses the value as a number in `range`.
    ///
    /// # Errors
    /// [`OptionError::Value`] if the value is not a number, or is outside `range`.
    pub fn number(self, range: RangeInclusive<u32>) -> Result<u32, OptionError> {
        let number = self.text.parse().ok().filter(|n| range.contains(n));
        number.ok_or_else(|| self.invalid(format!("{} to {}", range.start(), range.end())))
    }

    /// Parses the value as a number in `range`, or as the word `none`.
    ///
    /// # Errors
    /// [`OptionError::Value`] if the value is neither, or is outside `range`.
    pub fn number_or_none(self, range: RangeInclusive<u32>) -> Result<Option<u32>, OptionError> {
        if self.text == "none" {
            return Ok(None);
        }
        let number = self.text.parse().ok().filter(|n| range.contains(n));
        let expected = || format!("{} to {}, or none", range.start(), range.end());
        number.map(Some).ok_or_else(|| self.invalid(expected()))
    }

    /// Parses the value as numbers in `range` with colons between them, one or more.
    ///
    /// # Errors
    /// [`OptionError::Value`] if a part is not a number, or is outside `range`.
    pub fn numbers(self, range: RangeInclusive<u32>) -> Result<Vec<u32>, OptionError> {
        let parts = self.text.split(':');
        let numbers = parts.map(|part| part.parse().ok().filter(|n| range.contains(n)));
        numbers.collect::<Option<_>>().ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            self.invalid(format!(
                "{least} to {most}, or several such numbers as in 1:2:4"
            ))
        })
    }

    /// Parses the value as a size (see [`size_mib`]) and returns it in bytes.
    ///
    /// # Errors
    /// [`OptionError::Value`] if the value is not a size, or is outside `range_mib`, which is in
    /// MiB.
    pub fn mebibytes(self, range_mib: RangeInclusive<u64>) -> Result<u64, OptionError> {
        let size_mib = size_mib(self.text).filter(|size| range_mib.contains(size));
        size_mib.map(|size| size << 20).ok_or_else(|| {
            let (least, most) = (range_mib.start(), range_mib.end());
            self.invalid(format!("{least} to {most} ({SIZE_FORM})"))
        })
    }

    /// Looks the value up in `words`, pairs of a valid word and what the word means. Returns the
    /// meaning.
    ///
    /// # Errors
    /// [`OptionError::Value`] if the value is none of the words.
    pub fn choice<T: Copy>(self, words: &[(&str, T)]) -> Result<T, OptionError> {
        let found = words.iter().find(|(word, _)| *word == self.text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.invalid(words.join(" or "))
        })
    }

    /// Returns the error that refuses this value; `expected` tells the user which values are valid.
    pub fn invalid(self, expected: impl Into<String>) -> OptionError {
        let shown = if self.text.is_empty() {
            "``"
        } else {
            self.text
        };
        OptionError::Value {
            key: self.key_name,
            value: shown.to_owned(),
            expected: expected.into(),
        }
    }
}

/// Why a key, a value or the device in `--gpu` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The value is not valid for its key, or the device is not valid for its back end.
    #[error("invalid value {value} for --gpu {key}: {expected}")]
    Value {
        /// Name of the key, or of the back end if `value` is a device.
        key: &'static str,
        /// The value as the user typed it.
        value: String,
        /// Which values are valid.
        expected: String,
    },
    /// The back end has no such key.
    #[error(
        "unknown key `{key}` for --gpu {back_end}: its keys are {keys}",
        keys = .known.join(", ")
    )]
    Unknown {
        /// The key as the user typed it.
        key: String,
        /// Name of the back end.
        back_end: &'static str,
        /// Names of the keys that the back end has.
        known: Vec<&'static str>,
    },
}

impl OptionError {
    /// Adds the names of `keys`, which all back ends accept, to the known keys that
    /// [`Self::Unknown`] lists. Returns every other error unchanged.
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
        for text in ["64", "64MiB", "64M", "64m"] {
            let fruit = Fruit::parse(None, &[("weight", text)]).unwrap();
            assert_eq!(fruit.weight_bytes, 64 << 20);
        }
    }

    #[test]
    fn a_number_may_be_absent_where_none_is_a_value() {
        let read = |text| {
            let value = Value {
                key_name: "ripeness",
                text,
            };
            value.number_or_none(1..=9).map_err(|e| e.to_string())
        };
        assert_eq!((read("none"), read("9")), (Ok(None), Ok(Some(9))));
        for text in ["0", "10", "", "None", "-1"] {
            let message = read(text).unwrap_err();
            assert!(message.ends_with("ripeness: 1 to 9, or none"), "{message}");
        }
    }

    #[test]
    fn sizes_have_units_and_nothing_else_behind_the_number() {
        for (text, mib) in [
            ("0", 0),
            ("7", 7),
            ("4G", 4 << 10),
            ("4g", 4 << 10),
            ("4gib", 4 << 10),
            ("2T", 2 << 20),
            ("2TiB", 2 << 20),
            ("18446744073709551615M", u64::MAX),
        ] {
            assert_eq!(size_mib(text), Some(mib), "{text}");
        }
        for text in [
            "",
            "G",
            "MiB",
            "-1",
            "+1",
            "-1G",
            "1.5G",
            "4 G",
            "4GB",
            "4K",
            "4Gi",
            "G4",
            "\u{663}",
            "1é",
            "18446744073709551616",
            "18446744073709551615G",
        ] {
            assert_eq!(size_mib(text), None, "{text}");
        }
    }

    #[test]
    fn each_refusal_names_the_value_and_what_is_valid() {
        let size = format!("1 to 4096 ({SIZE_FORM})");
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
