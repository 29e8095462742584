//! Which settings of a run come from a description file, for messages about them.

use std::path::Path;

use causeway_terminal::shown_path;

use super::file::Entry;

/// A description file, and the settings that come from it. Others were typed.
#[derive(Clone, Debug)]
pub struct FileOrigin {
    file: String,
    settings: Vec<Setting>,
}

/// A setting of a description file.
#[derive(Clone, Debug)]
struct Setting {
    /// Name of its key.
    key: String,
    /// The option as messages name it.
    option: String,
    /// Its line.
    line: usize,
    /// Its values, if they are paths: messages about a file may not name the option.
    paths: Vec<String>,
}

impl FileOrigin {
    /// Returns what to say of the file at `path`, from which these `entries` are.
    pub fn new(path: &Path, entries: &[Entry<'_>]) -> Self {
        Self {
            file: shown_path(path),
            settings: entries.iter().map(Setting::of).collect(),
        }
    }

    /// Returns the file with the lines and keys that `message` is about, in words; `None` if it is
    /// about none.
    pub fn place(&self, message: &str) -> Option<String> {
        let named = self.settings.iter().filter(|it| it.is_in(message));
        let places = named.map(|it| format!("line {} ({})", it.line, it.key));
        let places: Vec<String> = places.collect();
        let places = match &places[..] {
            [] => return None,
            [place] => place.clone(),
            [places @ .., last] => format!("{} and {last}", places.join(", ")),
        };
        Some(format!("{}, {places}", self.file))
    }

    /// Returns the file in words.
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl Setting {
    fn of(entry: &Entry<'_>) -> Self {
        let paths = entry.values.iter().filter(|_| entry.key.holds_paths());
        Self {
            key: entry.key.name(),
            option: entry.key.option(),
            line: entry.line,
            paths: paths.map(|path| shown_path(Path::new(path))).collect(),
        }
    }

    fn is_in(&self, message: &str) -> bool {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let is_named = |text: &String| {
            let mut found = message.match_indices(text.as_str());
            // `--metrics` is not named where `--metrics-socket` is.
            found.any(|(at, _)| !message[at + text.len()..].starts_with(is_of_name))
        };
        is_named(&self.option) || self.paths.iter().any(|p| !p.is_empty() && is_named(p))
    }
}
