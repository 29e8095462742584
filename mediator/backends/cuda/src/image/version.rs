//! The version of PTX text. The driver's linker wants 3.1 or later, and the text of older modules
//! is valid there, too.

/// The directive that PTX begins with (PTX ISA, "PTX Module Directives").
const DIRECTIVE: &[u8] = b".version";

/// Makes text of a version before 3.1 say 3.1. All these versions have three characters, so that
/// nothing else moves. Other text stays as it is.
pub(crate) fn raise(text: &mut [u8]) {
    const LEAST: &[u8] = b"3.1";
    let Some(at) = version_at(text) else {
        return;
    };
    let Some(version) = text.get_mut(at..at + LEAST.len()) else {
        return;
    };
    let is_old = matches!(&*version, [b'1'..=b'2', b'.', b'0'..=b'9'] | b"3.0");
    if is_old {
        version.copy_from_slice(LEAST);
    }
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

    fn raised(text: &str) -> String {
        let mut text = text.as_bytes().to_vec();
        raise(&mut text);
        String::from_utf8(text).unwrap()
    }

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
            assert_eq!(raised(text), wanted);
        }
    }

    #[test]
    fn other_text_stays() {
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
            ".versions 1.4",
            ".target sm_10 .version 1.4",
            ".version /* 1.4 */ 7.0 // 1.4",
        ] {
            assert_eq!(raised(text), text);
        }
    }
}
