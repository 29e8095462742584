//! From characters to tokens (PTX ISA, "Lexical elements"). Tokens borrow from the text; the lexer
//! holds none.

use super::error::{ParseError, Result, shorten};

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// An identifier: `ld`, `%rd1`, `$L__BB0_2`, `_`.
    Word,
    /// A word after a dot, which the text leaves out: `.param`, `.2d`, `.L1::evict_last`.
    Dotted,
    /// A number in any notation, not looked into: `0x10U`, `0f3F800000`, `8.8`.
    Number,
    /// What stands between quotes, without them.
    Text,
    /// Punctuation or an operator.
    Symbol,
    /// The end of the text.
    End,
}

/// A token and its position in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub kind: TokenKind,
    pub text: &'a str,
    /// Line of the first character, from 1.
    pub line: u32,
    /// Column of the first character in bytes, from 1.
    pub column: u32,
}

impl Token<'_> {
    /// Returns whether the token is the symbol `symbol`.
    pub fn is_symbol(&self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text == symbol
    }

    /// Returns whether the token is `.name`.
    pub fn is_dotted(&self, name: &str) -> bool {
        self.kind == TokenKind::Dotted && self.text == name
    }
}

/// Operators of two characters; everything else is one.
const DOUBLE_SYMBOLS: [&str; 8] = ["<<", ">>", "<=", ">=", "==", "!=", "&&", "||"];

/// Reads tokens one after the other.
pub(super) struct Lexer<'a> {
    text: &'a str,
    position: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Lexer<'a> {
    /// Creates a lexer of `text` up to its end or its first NUL byte.
    pub fn new(text: &'a str) -> Self {
        let end = text.bytes().position(|byte| byte == 0);
        Self {
            text: &text[..end.unwrap_or(text.len())],
            position: 0,
            line: 1,
            line_start: 0,
        }
    }

    /// Returns the next token. Behind the last token, every call returns [`TokenKind::End`].
    pub fn next(&mut self) -> Result<Token<'a>> {
        self.skip_blanks()?;
        let Some(first) = self.byte(0) else {
            return Ok(self.token(TokenKind::End, self.position, self.position));
        };
        let start = self.position;
        match first {
            b'0'..=b'9' => {
                self.skip_number();
                Ok(self.token(TokenKind::Number, start, self.position))
            }
            b'.' if self.byte(1).is_some_and(continues_word) => {
                self.position += 1;
                self.skip_dotted();
                Ok(self.token(TokenKind::Dotted, start + 1, self.position))
            }
            // A lone percent sign is the remainder operator of constant expressions.
            b'%' if !self.byte(1).is_some_and(continues_word) => Ok(self.symbol(1)),
            _ if starts_word(first) => {
                // A leading `%` starts a word but continues none.
                self.position += 1;
                self.skip_while(continues_word);
                Ok(self.token(TokenKind::Word, start, self.position))
            }
            b'"' => self.string(),
            _ => self.punctuation(),
        }
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.position + ahead).copied()
    }

    fn token(&self, kind: TokenKind, start: usize, end: usize) -> Token<'a> {
        Token {
            kind,
            text: &self.text[start..end],
            line: self.line,
            column: u32::try_from(start - self.line_start + 1).unwrap_or(u32::MAX),
        }
    }

    fn error_here(&self, reason: impl Into<String>) -> ParseError {
        ParseError::at(
            &self.token(TokenKind::End, self.position, self.position),
            reason,
        )
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.byte(0).is_some_and(&wanted) {
            self.position += 1;
        }
    }

    fn skip_line(&mut self) {
        self.skip_while(|byte| byte != b'\n');
    }

    fn newline(&mut self) {
        self.position += 1;
        self.line = self.line.saturating_add(1);
        self.line_start = self.position;
    }

    fn skip_blanks(&mut self) -> Result {
        while let Some(byte) = self.byte(0) {
            match (byte, self.byte(1)) {
                (b'\n', _) => self.newline(),
                (b' ' | b'\t' | b'\r' | 0x0b | 0x0c, _) => self.position += 1,
                (b'/', Some(b'/')) => self.skip_line(),
                (b'/', Some(b'*')) => self.skip_comment()?,
                // Debug information of PTX 1.x and 2.x: a line of its own.
                (b'@', Some(b'@')) => self.skip_line(),
                _ => break,
            }
        }
        Ok(())
    }

    fn skip_comment(&mut self) -> Result {
        let unclosed = self.error_here("this comment does not end: close it with `*/`");
        self.position += 2;
        loop {
            match (self.byte(0), self.byte(1)) {
                (None, _) => return Err(unclosed),
                (Some(b'*'), Some(b'/')) => break,
                (Some(b'\n'), _) => self.newline(),
                _ => self.position += 1,
            }
        }
        self.position += 2;
        Ok(())
    }

    /// A dotted word may have parts after `::`, as in `.shared::cta` or `.L2::128B`.
    fn skip_dotted(&mut self) {
        loop {
            self.skip_while(continues_word);
            let scoped = self.byte(0) == Some(b':')
                && self.byte(1) == Some(b':')
                && self.byte(2).is_some_and(continues_word);
            if !scoped {
                break;
            }
            self.position += 2;
        }
    }

    /// Takes everything that belongs to one number; [`super::number`] decides whether it is one.
    fn skip_number(&mut self) {
        let prefixed = self.byte(0) == Some(b'0')
            && matches!(
                self.byte(1),
                Some(b'x' | b'X' | b'b' | b'B' | b'f' | b'F' | b'd' | b'D')
            );
        self.skip_while(|byte| byte.is_ascii_alphanumeric());
        if prefixed {
            return;
        }
        if self.byte(0) == Some(b'.') && self.byte(1).is_none_or(|byte| !starts_word(byte)) {
            self.position += 1;
            self.skip_while(|byte| byte.is_ascii_alphanumeric());
        }
        let last = self.text.as_bytes()[self.position - 1];
        if matches!(last, b'e' | b'E') && matches!(self.byte(0), Some(b'+' | b'-')) {
            self.position += 1;
            self.skip_while(|byte| byte.is_ascii_digit());
        }
    }

    fn string(&mut self) -> Result<Token<'a>> {
        let unclosed = self.error_here("this string does not end on its line");
        self.position += 1;
        let start = self.position;
        loop {
            match self.byte(0) {
                None | Some(b'\n') => return Err(unclosed),
                Some(b'"') => break,
                // An escaped quote does not end the string.
                Some(b'\\') if self.byte(1) == Some(b'"') => self.position += 2,
                Some(_) => self.position += 1,
            }
        }
        let token = self.token(TokenKind::Text, start, self.position);
        self.position += 1;
        Ok(token)
    }

    fn symbol(&mut self, length: usize) -> Token<'a> {
        let start = self.position;
        self.position += length;
        self.token(TokenKind::Symbol, start, self.position)
    }

    fn punctuation(&mut self) -> Result<Token<'a>> {
        let rest = &self.text[self.position..];
        if DOUBLE_SYMBOLS.iter().any(|double| rest.starts_with(double)) {
            return Ok(self.symbol(2));
        }
        match rest.chars().next() {
            Some(c) if "{}()[]<>,;:=+-*/!~&|^?@".contains(c) => Ok(self.symbol(1)),
            other => {
                let shown = shorten(&other.map(String::from).unwrap_or_default());
                Err(self.error_here(format!("invalid character `{shown}`")))
            }
        }
    }
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%')
}

fn continues_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(TokenKind, String)> {
        let mut lexer = Lexer::new(text);
        let mut found = Vec::new();
        loop {
            let token = lexer.next().expect("text is well formed");
            if token.kind == TokenKind::End {
                return found;
            }
            found.push((token.kind, token.text.to_owned()));
        }
    }

    #[test]
    fn instruction_splits_into_words_and_dotted_words() {
        let found = tokens("@!%p1 ld.global.L1::no_allocate.v2.f32 {%f1,_}, [%rd1+-8];");
        let text: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            text,
            [
                "@",
                "!",
                "%p1",
                "ld",
                "global",
                "L1::no_allocate",
                "v2",
                "f32",
                "{",
                "%f1",
                ",",
                "_",
                "}",
                ",",
                "[",
                "%rd1",
                "+",
                "-",
                "8",
                "]",
                ";"
            ]
        );
        assert_eq!(found[5].0, TokenKind::Dotted);
    }

    #[test]
    fn numbers_keep_exponents_and_prefixes_apart() {
        let text: Vec<String> = tokens("1.5e-3 0f3F80000E+1 8.8 7U 0x1e+2 1e+5 2.")
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert_eq!(
            text,
            [
                "1.5e-3",
                "0f3F80000E",
                "+",
                "1",
                "8.8",
                "7U",
                "0x1e",
                "+",
                "2",
                "1e+5",
                "2."
            ]
        );
    }

    #[test]
    fn lines_are_counted_through_comments() {
        let mut lexer = Lexer::new("/* a\nb */\n  // c\n  ret\0 ; garbage");
        let token = lexer.next().expect("a word");
        assert_eq!((token.text, token.line, token.column), ("ret", 4, 3));
        assert_eq!(lexer.next().expect("NUL ends").kind, TokenKind::End);
    }

    #[test]
    fn unclosed_comment_and_string_name_their_beginning() {
        let mut lexer = Lexer::new("\n /* never");
        let error = lexer.next().expect_err("unclosed");
        assert_eq!((error.line, error.column), (2, 2));
        let mut lexer = Lexer::new("\"abc\n\"");
        assert_eq!(lexer.next().expect_err("unclosed").line, 1);
    }
}
