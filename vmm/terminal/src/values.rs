//! Parsers for values of options that several commands have. Each returns a text that says which
//! values are valid, if the value is not.

use std::fmt;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Upper end of a range from which on it is not worth saying.
const UNLIMITED: u64 = u32::MAX as u64;
/// Longest time limit in seconds: a year.
const LIMIT_S_MAX: u64 = 365 * 24 * 3600;

/// Returns a parser for whole numbers in `range`. `unit` follows the range in its message: a blank
/// and the unit, or nothing for plain numbers.
pub fn number<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
    unit: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| match *range.end() {
            UNLIMITED.. => format!("choose a whole number from {}{unit}", range.start()),
            most => format!("choose {} to {most}{unit}", range.start()),
        })
    }
}

/// The longest time that a run may take, as `--timeout` gives it. It prints as its number of
/// seconds, or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimit(Option<NonZero<u64>>);

impl TimeLimit {
    /// No limit: the run ends when its guests end.
    pub const NONE: Self = Self(None);

    /// Returns a limit of `seconds` seconds; 0 means none.
    pub const fn seconds(seconds: u64) -> Self {
        Self(NonZero::new(seconds))
    }

    /// Returns the limit as a duration; `None` if there is none.
    pub fn duration(self) -> Option<Duration> {
        self.0.map(|seconds| Duration::from_secs(seconds.get()))
    }

    /// Parses a value of `--timeout`: a number of seconds, up to a year. `0` and `none` mean no
    /// limit.
    ///
    /// # Errors
    /// A text that says which values are valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let seconds = text.parse().ok().filter(|s| *s <= LIMIT_S_MAX);
        let seconds = seconds.map(Self::seconds);
        seconds.ok_or_else(|| {
            format!("choose 1 to {LIMIT_S_MAX} s; 0 and none mean that there is no limit")
        })
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(seconds) => seconds.fmt(f),
            None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_and_in_range() {
        let parse = number::<u32>(1..=64, " CPUs");
        assert_eq!(parse("1"), Ok(1));
        assert_eq!(parse("64"), Ok(64));
        for text in ["", "0", "65", "-1", "1.5", "99999999999", "x"] {
            assert_eq!(parse(text).unwrap_err(), "choose 1 to 64 CPUs", "{text}");
        }
        let text = number::<u64>(1..=u64::MAX, "")("0").unwrap_err();
        assert_eq!(text, "choose a whole number from 1");
    }

    #[test]
    fn zero_and_none_are_no_limit() {
        for text in ["0", "none"] {
            assert_eq!(TimeLimit::parse(text), Ok(TimeLimit::NONE));
        }
        let limit = TimeLimit::parse("90").unwrap();
        assert_eq!(limit.duration(), Some(Duration::from_secs(90)));
        assert_eq!(
            (limit.to_string(), TimeLimit::NONE.to_string()),
            ("90".into(), "none".into())
        );
        for text in ["", "-1", "soon", "31536001", "1.5"] {
            let text = TimeLimit::parse(text).unwrap_err();
            assert!(
                text.starts_with("choose 1 to 31536000 s; 0 and none"),
                "{text}"
            );
        }
    }
}
