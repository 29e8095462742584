//! What PTX text declares: variables, functions and their parameters (PTX ISA, "State Spaces,
//! Types, and Variables").

use std::ops::Range;

use super::ptx::Token;

/// Directives with which a variable or a function of a module begins.
const BEGINNINGS: [&str; 13] = [
    ".extern",
    ".visible",
    ".weak",
    ".common",
    ".entry",
    ".func",
    ".global",
    ".const",
    ".shared",
    ".tex",
    ".texref",
    ".samplerref",
    ".surfref",
];

/// A part of a module, by the numbers of its tokens.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A declaration of variables, with its semicolon.
    Variable(Range<usize>),
    /// A function that is defined: its body is without the braces.
    Function {
        header: Range<usize>,
        body: Range<usize>,
    },
}

/// A name that is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Declared<'t> {
    pub(super) name: &'t str,
    /// With a number, the name stands for as many, each with its own number behind the name.
    count: Option<u32>,
}

impl Declared<'_> {
    /// Returns whether `name` is declared by this.
    pub(super) fn is(&self, name: &str) -> bool {
        let Some(count) = self.count else {
            return name == self.name;
        };
        let number = name.strip_prefix(self.name);
        number.is_some_and(|number| {
            let is_plain = number == "0" || !number.starts_with(['0', '+']);
            is_plain && number.parse::<u32>().is_ok_and(|number| number < count)
        })
    }
}

/// Returns the variables and the defined functions of a module; `None` if one does not end.
pub(super) fn items(tokens: &[Token<'_>]) -> Option<Vec<Item>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if token.text == ".section" {
            at += tokens[at..].iter().position(|token| token.text == "{")?;
            at = matching(tokens, at, ("{", "}"))?;
        } else if BEGINNINGS.contains(&token.text) {
            at = item(tokens, at, &mut found)?;
        }
        at += 1;
    }
    Some(found)
}

/// Adds the item that begins at a token. Returns the number of its last token.
fn item(tokens: &[Token<'_>], start: usize, found: &mut Vec<Item>) -> Option<usize> {
    let position = |marks: &[&str]| {
        let mut all = tokens[start..].iter();
        all.position(|token| marks.contains(&token.text))
            .map(|at| start + at)
    };
    let mark = position(&[";", "{"])?;
    let mut header = tokens[start..mark].iter();
    let is_function = header.any(|token| matches!(token.text, ".entry" | ".func"));
    if !is_function {
        let end = position(&[";"])?;
        found.push(Item::Variable(start..end + 1));
        return Some(end);
    }
    if tokens[mark].text == ";" {
        return Some(mark);
    }
    let end = matching(tokens, mark, ("{", "}"))?;
    found.push(Item::Function {
        header: start..mark,
        body: mark + 1..end,
    });
    Some(end)
}

/// Returns the number of the token that closes what the one with number `open` opens; `None` if
/// that one does not open, or is not closed.
pub(super) fn matching(
    tokens: &[Token<'_>],
    open: usize,
    (opening, closing): (&str, &str),
) -> Option<usize> {
    if tokens.get(open)?.text != opening {
        return None;
    }
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.text == opening {
            depth += 1;
        } else if token.text == closing {
            depth -= 1;
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Returns whether a directive declares something in a function.
pub(super) fn is_local(directive: &str) -> bool {
    matches!(directive, ".reg" | ".param" | ".local") || BEGINNINGS.contains(&directive)
}

/// Returns the names in a declaration, or in a list of them that commas separate.
pub(super) fn names<'t>(tokens: &[Token<'t>]) -> Vec<Declared<'t>> {
    let mut found: Vec<Declared<'t>> = Vec::new();
    let (mut depth, mut is_wanted) = (0_usize, true);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            "," if depth == 0 => is_wanted = true,
            "=" => is_wanted &= depth != 0,
            "<" => {
                let count = tokens.get(at + 1).and_then(|token| token.text.parse().ok());
                if let Some(last) = found.last_mut() {
                    last.count = count.or(Some(u32::MAX));
                }
            }
            name if depth == 0 && is_wanted && is_identifier(name) => {
                found.push(Declared { name, count: None });
                is_wanted = false;
            }
            _ => {}
        }
    }
    found
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%'))
}
