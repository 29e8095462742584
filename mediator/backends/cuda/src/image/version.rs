//! The version of PTX text. The driver's linker wants 3.1 or later, and the driver itself takes
//! any.
//!
//! Text that says 3.1 instead of its own version takes as much memory, so the linker's result tells
//! how much that is. Its meaning may differ: in 1.x, `div.f32` and `cvt` have other defaults. Some
//! old text is not valid as 3.1 at all, such as registers outside of functions.

/// The directive that PTX begins with (PTX ISA, "PTX Module Directives").
const DIRECTIVE: &[u8] = b".version";

/// Returns a copy of text of a version before 3.1 that says 3.1; `None` if the text is of a later
/// version. All these versions have three characters, so that nothing else moves.
pub(crate) fn raised(text: &[u8]) -> Option<Vec<u8>> {
    const LEAST: &[u8] = b"3.1";
    let at = version_at(text)?;
    let behind = at + LEAST.len();
    let version = text.get(at..behind)?;
    let is_old = matches!(version, [b'1'..=b'2', b'.', b'0'..=b'9'] | b"3.0");
    let goes_on = text.get(behind).is_some_and(u8::is_ascii_digit);
    (is_old && !goes_on).then(|| [&text[..at], LEAST, &text[behind..]].concat())
}

/// Returns where the version stands of text that begins with it.
fn version_at(text: &[u8]) -> Option<usize> {
    let directive = space(text, 0)?;
    let behind = directive + DIRECTIVE.len();
    (text.get(directive..behind)? == DIRECTIVE).then_some(())?;
    let version = space(text, behind)?;
    (version > behind).then_some(version)
}

/// Returns where the first thing from `at` on stands that is neither white space nor a comment.
fn space(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let rest = text.get(at..)?;
        at += match rest {
            [b' ' | b'\t'..=b'\r', ..] => 1,
            [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n')?,
            [b'/', b'*', inside @ ..] => 4 + inside.windows(2).position(|end| end == b"*/")?,
            _ => return Some(at),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_3_1_are_raised() {
        for (text, wanted) in [
            (".version 1.4\n.target sm_10", ".version 3.1\n.target sm_10"),
            (".version\t3.0", ".version\t3.1"),
            (
                "// of .version 2.0\n /**/.version 2.3 ",
                "// of .version 2.0\n /**/.version 3.1 ",
            ),
        ] {
            assert_eq!(raised(text.as_bytes()).unwrap(), wanted.as_bytes());
        }
    }

    #[test]
    fn other_text_is_not() {
        for text in [
            "",
            "/",
            "/*",
            "/*/",
            "// .version 1.4",
            ".version",
            ".version ",
            ".version 1.",
            ".version 3.1",
            ".version 9.0",
            ".version 10.0",
            ".version 2.35",
            ".versions 1.4",
            ".target sm_10 .version 1.4",
            ".version /* 1.4 */ 7.0 // 1.4",
        ] {
            assert_eq!(raised(text.as_bytes()), None, "{text}");
        }
    }
}
