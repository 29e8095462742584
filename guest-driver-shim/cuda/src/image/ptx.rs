//! What the library reads of PTX text (PTX ISA, "Directives"). The device checks the rest.

use super::{Entry, Target};
use crate::error::{Answer, Code};

/// Returns the word behind the first `name` outside comments.
pub(super) fn directive<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut words = Words(text);
    words.find(|word| *word == name)?;
    words.next()
}

/// Refuses text for a later version of PTX or a newer device, as CUDA does.
pub(super) fn check(text: &str, target: &Target) -> Answer {
    let version = directive(text, ".version").ok_or(Code::INVALID_IMAGE)?;
    let version = version
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    if version.is_some_and(|version: (u32, u32)| version > target.ptx_version_max) {
        return Err(Code::UNSUPPORTED_PTX_VERSION);
    }
    let made_for = directive(text, ".target").and_then(|word| word.strip_prefix("sm_"));
    let digits = made_for.and_then(|word| word.split(|c: char| !c.is_ascii_digit()).next());
    let made_for = digits.and_then(|digits| digits.parse::<u32>().ok());
    match made_for.is_some_and(|made_for| made_for > target.architecture) {
        true => Err(Code::INVALID_PTX),
        false => Ok(()),
    }
}

/// Returns the kernels that the text defines.
pub(super) fn entries(text: &str) -> Vec<Entry> {
    let mut words = Words(text);
    let mut found: Vec<Entry> = Vec::new();
    while let Some(word) = words.next() {
        match word {
            ".entry" => found.extend(words.next().map(|name| Entry {
                name: name.to_owned(),
                required_threads: None,
            })),
            ".reqntid" => {
                let threads = block(&mut words);
                if let Some(entry) = found.last_mut() {
                    entry.required_threads = threads;
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns up to three numbers that commas separate; those that are not there are 1.
fn block(words: &mut Words<'_>) -> Option<[u32; 3]> {
    let mut threads = [1; 3];
    for (index, place) in threads.iter_mut().enumerate() {
        let mut behind = Words(words.0);
        if index != 0 && behind.next() != Some(",") {
            break;
        }
        *place = behind.next()?.parse().ok()?;
        words.0 = behind.0;
    }
    Some(threads)
}

/// Words and marks of PTX text, without comments and spaces.
pub(super) struct Words<'t>(&'t str);

impl<'t> Words<'t> {
    pub(super) const fn of(text: &'t str) -> Self {
        Self(text)
    }

    /// Returns how many bytes are behind the last word.
    pub(super) const fn left(&self) -> usize {
        self.0.len()
    }
}

/// A word or a mark, and where it begins in the text, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'t> {
    pub(super) at: usize,
    pub(super) text: &'t str,
}

impl Token<'_> {
    /// Returns where it ends.
    pub(super) const fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// Returns the words and marks of a text.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut words = Words(text);
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let at = text.len() - words.left() - word.len();
        found.push(Token { at, text: word });
    }
    found
}

fn is_in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        loop {
            let rest = self.0.trim_start();
            self.0 = if let Some(comment) = rest.strip_prefix("//") {
                comment.split_once('\n').map_or("", |(_, rest)| rest)
            } else if let Some(comment) = rest.strip_prefix("/*") {
                comment.split_once("*/").map_or("", |(_, rest)| rest)
            } else if let Some(text) = rest.strip_prefix('"') {
                text.split_once('"').map_or("", |(_, rest)| rest)
            } else {
                let first = rest.chars().next()?;
                let end = match is_in_word(first) {
                    true => rest.find(|c| !is_in_word(c)).unwrap_or(rest.len()),
                    false => first.len_utf8(),
                };
                let (word, behind) = rest.split_at(end);
                self.0 = behind;
                return Some(word);
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::SOFTWARE;

    fn checked(version: &str, made_for: &str) -> Answer {
        let text =
            format!("// .version 99.0\n/* .target */ .version {version}\n.target {made_for}");
        check(&text, &SOFTWARE)
    }

    #[test]
    fn newer_text_is_refused() {
        for (version, made_for, answer) in [
            ("8.0", "sm_90", Ok(())),
            ("9.0", "sm_90a, texmode_independent", Ok(())),
            ("9.1", "sm_90", Err(Code::UNSUPPORTED_PTX_VERSION)),
            ("10.0", "sm_90", Err(Code::UNSUPPORTED_PTX_VERSION)),
            ("8.0", "sm_100", Err(Code::INVALID_PTX)),
            ("8.0", "sm_100a", Err(Code::INVALID_PTX)),
        ] {
            assert_eq!(checked(version, made_for), answer, "{version} {made_for}");
        }
    }

    #[test]
    fn kernels_are_found_outside_comments_and_strings() {
        let text = r#".version 8.0 // .entry no
            /* .entry neither */ .visible .entry _Z3addPf(.param .u64 a)
            .reqntid 32, 2
            { .loc 1 1 1; }
            .section .debug_str { .b8 1 } .file 1 ".entry nor.this"
            .weak .entry k$2() .reqntid 128 .minnctapersm 2 { }
            .func called() {}
            .entry last{ ret; }"#;
        let entry = |name: &str, required_threads| Entry {
            name: name.into(),
            required_threads,
        };
        let wanted = [
            entry("_Z3addPf", Some([32, 2, 1])),
            entry("k$2", Some([128, 1, 1])),
            entry("last", None),
        ];
        assert_eq!(entries(text), wanted);
    }
}
