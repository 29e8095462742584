//! Prints settings as a description file: `--print-config`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use causeway_terminal::{Code, Failure, escaped};
use toml_writer::ToTomlValue as _;

use super::keys::{Key, Takes};

/// Returns the description file with these `settings`, one in a line. Relative paths get `folder`
/// in front, in which this process was started.
///
/// # Errors
/// A usage failure if a value is not UTF-8, which a description file cannot have.
pub fn print(settings: &[(Key<'_>, Vec<OsString>)], folder: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    for (key, values) in settings {
        let values = values.iter().cloned();
        let values = values.map(|value| utf8(*key, key.placed_in(folder, value)));
        let values = values.collect::<Result<Vec<String>, _>>()?;
        if let Some(value) = value(*key, &values) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} = {value}", key.name());
        }
    }
    Ok(text)
}

fn utf8(key: Key<'_>, value: OsString) -> Result<String, Failure> {
    let text = value.into_string();
    text.map_err(|value| {
        let shown = value.to_string_lossy();
        let message = format!(
            "cannot print the value {} of {} for --print-config: it is not UTF-8, and a \
             description file has only such text; rename the file, or leave the option out and \
             type it beside --config",
            escaped(&shown),
            key.option()
        );
        Failure::without_cause(Code::Usage, message)
    })
}

/// Returns the value of a key as it is written; `None` if it is not set.
fn value(key: Key<'_>, values: &[String]) -> Option<String> {
    let first = values.first()?;
    match key.takes() {
        Takes::Switch => Some(true.to_toml_value()),
        Takes::Count => Some(first.clone()).filter(|number| number != "0"),
        Takes::One if is_number(first) => Some(first.clone()),
        Takes::One => Some(first.to_toml_value()),
        Takes::Several => {
            let all = values.iter().map(|value| value.to_toml_value());
            Some(format!("[{}]", all.collect::<Vec<_>>().join(", ")))
        }
    }
}

/// Returns whether `text` is a number that is read again as this text.
fn is_number(text: &str) -> bool {
    let number = text.parse::<i64>();
    number.is_ok_and(|number| number.to_string() == text)
}
