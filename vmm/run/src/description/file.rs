//! Reads description files: each key with its values and its line.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use causeway_terminal::{Code, Failure, escaped, shown_path};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::keys::{Key, Takes};

/// Largest description file in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Least similarity, from 0 to 1, of an unknown key to one that is proposed; the parser of the
/// command line has the same for options.
const SIMILARITY_MIN: f64 = 0.7;
/// Most characters of a value that a message shows.
const SHOWN_MAX: usize = 40;

/// A key that a description file sets.
#[derive(Debug)]
pub struct Entry<'c> {
    /// The key.
    pub key: Key<'c>,
    /// Its values, as on the command line. A switch that is off has none.
    pub values: Vec<OsString>,
    /// Line of the key, from 1.
    pub line: usize,
}

/// A mistake in a description file. Paths and lines are not part of its text.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Mistake {
    #[error("this is not UTF-8: save the file in that encoding")]
    Encoding,
    #[error("this is not TOML ({0}): write each key once, as KEY = VALUE, with text in quotes")]
    Syntax(String),
    #[error("unknown key {key}: {way_out}")]
    UnknownKey { key: String, way_out: String },
    #[error("invalid value {value} for {key}: choose {takes}")]
    Type {
        key: String,
        value: String,
        takes: &'static str,
    },
    #[error("invalid value {value} for {key}: it has a zero byte, which no argument can have")]
    ZeroByte { key: String, value: String },
}

/// Reads the description file at `path`, which may have these `keys`. Paths in it are relative to
/// its folder. Returns the entries in the order of their lines.
///
/// # Errors
/// A usage failure that names the file, and the line if there is one, if the file cannot be read or
/// is not a description.
pub fn read<'c>(path: &Path, keys: &[Key<'c>]) -> Result<Vec<Entry<'c>>, Failure> {
    let bytes = read_bytes(path).map_err(|e| {
        let message = format!(
            "cannot read {} of --config, which takes a file in TOML format of at most {} KiB",
            shown_path(path),
            BYTES_MAX >> 10
        );
        Failure::new(Code::Usage, message, e)
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(&bytes, keys, folder).map_err(|(mistake, line)| {
        Failure::usage(mistake.to_string()).at(&format!("{}, line {line}", shown_path(path)))
    })
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // Checked before the file is opened, because opening a pipe waits for a writer.
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    // The file may have grown since, or report no length, as in /proc.
    File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(io::Error::other("it is larger")),
        false => Ok(bytes),
    }
}

fn parse<'c>(
    bytes: &[u8],
    keys: &[Key<'c>],
    folder: &Path,
) -> Result<Vec<Entry<'c>>, (Mistake, usize)> {
    let text = str::from_utf8(bytes)
        .map_err(|e| (Mistake::Encoding, line_at(&bytes[..e.valid_up_to()])))?;
    let line = |offset: usize| line_at(text.as_bytes().get(..offset).unwrap_or_default());
    let table = DeTable::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        (Mistake::Syntax(e.message().replace('\n', ", ")), line(at))
    })?;
    let mut pairs: Vec<_> = table.get_ref().iter().collect();
    pairs.sort_unstable_by_key(|(name, _)| name.span().start);
    let entry = |(name, value): (&Spanned<_>, &Spanned<_>)| {
        let entry = entry_of(name, value, text, keys, folder);
        let line = line(name.span().start);
        match entry {
            Ok((key, values)) => Ok(Entry { key, values, line }),
            Err(mistake) => Err((mistake, line)),
        }
    };
    pairs.into_iter().map(entry).collect()
}

/// Returns the number of the line that follows `before`.
fn line_at(before: &[u8]) -> usize {
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

fn entry_of<'c>(
    name: &Spanned<impl AsRef<str>>,
    value: &Spanned<DeValue<'_>>,
    text: &str,
    keys: &[Key<'c>],
    folder: &Path,
) -> Result<(Key<'c>, Vec<OsString>), Mistake> {
    let name = name.get_ref().as_ref();
    let mut all = keys.iter();
    let Some(key) = all.find(|key| key.name() == name).copied() else {
        return Err(unknown(name, keys));
    };
    let shown = || shown_value(text, value.span());
    let takes = key.takes();
    let values = values(takes, value.get_ref()).ok_or_else(|| Mistake::Type {
        key: name.to_owned(),
        value: shown(),
        takes: in_words(takes),
    })?;
    if values.iter().any(|value| value.contains('\0')) {
        let key = name.to_owned();
        return Err(Mistake::ZeroByte {
            key,
            value: shown(),
        });
    }
    let values = values.into_iter();
    let values = values.map(|value| key.placed_in(folder, value.into()));
    Ok((key, values.collect()))
}

fn unknown(name: &str, keys: &[Key<'_>]) -> Mistake {
    let similar = keys.iter().map(|key| key.name());
    let similar = similar.map(|known| (strsim::jaro(name, &known), known));
    let best = similar.max_by(|(one, _), (other, _)| one.total_cmp(other));
    let way_out = match best {
        Some((similarity, key)) if similarity > SIMILARITY_MIN => format!("did you mean {key}?"),
        _ => String::from(
            "keys are the options that `causeway run --help` lists, without their dashes",
        ),
    };
    let key = escaped(name).into_owned();
    Mistake::UnknownKey { key, way_out }
}

/// Returns a value as words of the command line have it; `None` if it has the wrong type.
fn values(takes: Takes, value: &DeValue<'_>) -> Option<Vec<String>> {
    match (takes, value) {
        (Takes::Switch, DeValue::Boolean(true)) => Some(vec![true.to_string()]),
        (Takes::Switch, DeValue::Boolean(false)) => Some(Vec::new()),
        (Takes::Count, DeValue::Integer(number)) => {
            let number: u8 = decimal(number)?.parse().ok()?;
            Some(vec![number.to_string()])
        }
        (Takes::Several, DeValue::Array(values)) => {
            values.iter().map(|value| scalar(value.get_ref())).collect()
        }
        (Takes::One | Takes::Several, value) => Some(vec![scalar(value)?]),
        _ => None,
    }
}

/// Returns a text or a number as it is typed.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => decimal(number),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Returns the digits of a number. One in decimal notation may be as long as it likes: who reads
/// the option says which numbers are valid.
fn decimal(number: &DeInteger<'_>) -> Option<String> {
    let digits = number.as_str();
    match number.radix() {
        10 => Some(digits.strip_prefix('+').unwrap_or(digits).to_owned()),
        radix => Some(u128::from_str_radix(digits, radix).ok()?.to_string()),
    }
}

const fn in_words(takes: Takes) -> &'static str {
    match takes {
        Takes::Switch => "true or false",
        Takes::Count => "a whole number from 0 to 255",
        Takes::One => "a text in quotes, or a number",
        Takes::Several => "a text in quotes, or several between [ and ]",
    }
}

/// Returns the beginning of a value as it is written in the file.
fn shown_value(text: &str, span: Range<usize>) -> String {
    let written = text.get(span).unwrap_or_default();
    let first = written.lines().next().unwrap_or_default();
    let mut shown: String = first.chars().take(SHOWN_MAX).collect();
    if shown.len() < written.len() {
        shown.push('…');
    }
    escaped(&shown).into_owned()
}
