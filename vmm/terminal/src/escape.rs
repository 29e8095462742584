//! Text of other people (file names, reasons from guests) in lines of this command.

use std::borrow::Cow;
use std::path::Path;

/// Returns `text` with its control characters escaped, such as `\n` and `\u{1b}`, so that it stays
/// on one line and cannot control the terminal.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    Cow::Owned(line)
}

/// Returns `path` as messages and reports show it: with control characters [`escaped`], and bytes
/// that are not UTF-8 replaced.
pub fn shown_path(path: &Path) -> String {
    escaped(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_letters_stay() {
        assert_eq!(escaped("größe 4 µs"), "größe 4 µs");
        assert_eq!(
            escaped("a\nb\tc\x1b[31m\u{9b}"),
            "a\\nb\\tc\\u{1b}[31m\\u{9b}"
        );
        assert_eq!(escaped("a\\n"), "a\\n", "escaping twice changes nothing");
        assert_eq!(shown_path(Path::new("x\r.json")), "x\\r.json");
    }
}
