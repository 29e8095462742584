//! Errors of the parser.

use super::lexer::{Token, TokenKind};

/// Characters of a token that a message shows.
const SHOWN_CHARACTERS: usize = 48;

/// Why a text is refused: it is not PTX, or it uses PTX that the parser does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}, column {column}: {reason}")]
pub struct ParseError {
    /// Line of the mistake, from 1.
    pub line: u32,
    /// Column of the mistake in bytes, from 1.
    pub column: u32,
    /// Explanation for the user: what the text contains, what was expected, and how to correct the
    /// text where that is known.
    pub reason: String,
}

impl ParseError {
    /// Returns an error at `token` whose message is `reason`.
    pub(super) fn at(token: &Token<'_>, reason: impl Into<String>) -> Self {
        Self {
            line: token.line,
            column: token.column,
            reason: reason.into(),
        }
    }

    /// Returns the error that `expected` should stand where `token` is.
    pub(super) fn expected(token: &Token<'_>, expected: &str) -> Self {
        Self::at(
            token,
            format!("expected {expected}, found {}", describe(token)),
        )
    }
}

/// Result of parsing.
pub(super) type Result<T = ()> = std::result::Result<T, ParseError>;

/// Returns a token as messages show it: quoted, and cut to a length that a log can take.
pub(super) fn describe(token: &Token<'_>) -> String {
    let text = shorten(token.text);
    match token.kind {
        TokenKind::End => "the end of the text".to_owned(),
        TokenKind::Dotted => format!("`.{text}`"),
        TokenKind::Text => format!("the string \"{text}\""),
        TokenKind::Word | TokenKind::Number | TokenKind::Symbol => format!("`{text}`"),
    }
}

/// Returns the first characters of `text`, with control characters replaced.
pub(super) fn shorten(text: &str) -> String {
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut shown: String = text.chars().take(SHOWN_CHARACTERS).map(clean).collect();
    if text.chars().nth(SHOWN_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}
