//! Where the parser stands: one token of look-ahead, nesting depth, and the sizes of variables in
//! scope.

use std::collections::HashMap;

use super::ast::ScalarType;
use super::error::{ParseError, Result};
use super::lexer::{Lexer, Token, TokenKind};
use super::number::{self, Value};

/// Nesting of blocks, initializers and expressions together. Compilers stay below ten; the bound
/// keeps the recursion of the parser, and of the code that walks or drops the tree, within a small
/// stack.
const DEPTH_MAX: u32 = 64;

/// Bytes of the tree that one module may make, as [`Cursor::charge`] counts them. The tree of a
/// real module is some 30 times as large as its text, and lives until the module has been lowered;
/// text made to be costly reaches 100 times.
const TREE_BYTES_MAX: usize = 128 << 20;
/// What an allocation costs beside its content.
const ALLOCATION_BYTES: usize = 16;

/// The tokens of a module, one after the other.
pub(super) struct Cursor<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    depth: u32,
    /// Bytes of the tree that may still be made.
    tree_bytes_left: usize,
    /// Bytes of an element of each array in scope, innermost scope last. Only those that are not 1.
    element_bytes: Vec<HashMap<&'a str, u32>>,
}

impl<'a> Cursor<'a> {
    /// Stands at the first token of `text`.
    pub fn new(text: &'a str) -> Result<Self> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        Ok(Self {
            lexer,
            token,
            depth: 0,
            tree_bytes_left: TREE_BYTES_MAX,
            element_bytes: vec![HashMap::new()],
        })
    }

    /// The token that comes next.
    pub fn peek(&self) -> &Token<'a> {
        &self.token
    }

    /// Line of the token that comes next.
    pub fn line(&self) -> u32 {
        self.token.line
    }

    /// Takes a token, whatever it is.
    pub fn take(&mut self) -> Result<Token<'a>> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    /// Takes `symbol` if it comes next, and says whether it did.
    pub fn eat(&mut self, symbol: &str) -> Result<bool> {
        let here = self.token.is_symbol(symbol);
        if here {
            self.take()?;
        }
        Ok(here)
    }

    /// Takes `.name` if it comes next, and says whether it did.
    pub fn eat_dotted(&mut self, name: &str) -> Result<bool> {
        let here = self.token.is_dotted(name);
        if here {
            self.take()?;
        }
        Ok(here)
    }

    /// Takes `symbol`, which must come next; `after` completes "expected `;` after …".
    pub fn expect(&mut self, symbol: &str, after: &str) -> Result {
        if self.eat(symbol)? {
            return Ok(());
        }
        Err(self.expected(&format!("`{symbol}` {after}")))
    }

    /// Reads items between commas with `item` up to `close`, which is taken too; there is at least
    /// one. `after` completes "expected `,` or `;` after …".
    pub fn list<T>(
        &mut self,
        close: &str,
        after: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        loop {
            items.push(item(self)?);
            if self.eat(close)? {
                return Ok(items);
            }
            if !self.eat(",")? {
                return Err(self.expected(&format!("`,` or `{close}` after {after}")));
            }
        }
    }

    /// Takes a word, which must come next; `what` says what it would name.
    pub fn word(&mut self, what: &str) -> Result<&'a str> {
        self.kind(TokenKind::Word, what)
    }

    /// Takes a string, which must come next.
    pub fn string(&mut self, what: &str) -> Result<&'a str> {
        self.kind(TokenKind::Text, what)
    }

    fn kind(&mut self, kind: TokenKind, what: &str) -> Result<&'a str> {
        if self.token.kind != kind {
            return Err(self.expected(what));
        }
        Ok(self.take()?.text)
    }

    /// Takes a non-negative integer literal of at most 32 bits.
    pub fn number_u32(&mut self, what: &str) -> Result<u32> {
        if self.token.kind != TokenKind::Number {
            return Err(self.expected(what));
        }
        let value = match number::literal(&self.token)? {
            Value::Signed(value) => u32::try_from(value).ok(),
            Value::Unsigned(value) => u32::try_from(value).ok(),
            Value::Float(_) => None,
        };
        let value = value.ok_or_else(|| self.expected(&format!("{what} below 2^32")))?;
        self.take()?;
        Ok(value)
    }

    /// Takes a scalar type, which must come next.
    pub fn scalar_type(&mut self) -> Result<ScalarType> {
        if self.token.kind == TokenKind::Dotted
            && let Some(scalar) = ScalarType::from_name(self.token.text)
        {
            self.take()?;
            return Ok(scalar);
        }
        Err(self.expected("a fundamental type such as `.b32` or `.f32`"))
    }

    /// `expected …, found …` at the token that comes next.
    pub fn expected(&self, what: &str) -> ParseError {
        ParseError::expected(&self.token, what)
    }

    /// An error at the token that comes next.
    pub fn error(&self, reason: impl Into<String>) -> ParseError {
        ParseError::at(&self.token, reason)
    }

    /// Runs `inside` one level deeper, or refuses text that nests too deeply.
    pub fn nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("nested more than {DEPTH_MAX} levels deep")));
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    /// Counts a node of type `T` with `text` of its own towards the size of the tree, and refuses
    /// what is too much.
    pub fn charge<T>(&mut self, text: &str) -> Result {
        let bytes = size_of::<T>() + ALLOCATION_BYTES + text.len();
        match self.tree_bytes_left.checked_sub(bytes) {
            Some(left) => self.tree_bytes_left = left,
            None => {
                return Err(self.error(format!(
                    "the module needs more than {} MiB once it is read: split it",
                    TREE_BYTES_MAX >> 20
                )));
            }
        }
        Ok(())
    }

    /// Skips from an opening `open` to its `close`, both included.
    pub fn skip_enclosed(&mut self, open: &str, close: &str) -> Result {
        let first = *self.peek();
        self.expect(open, "here")?;
        let mut level = 1_u32;
        while level > 0 {
            if self.token.kind == TokenKind::End {
                let reason = format!("this `{open}` has no matching `{close}`");
                return Err(ParseError::at(&first, reason));
            }
            let token = self.take()?;
            if token.is_symbol(open) {
                level = level.saturating_add(1);
            } else if token.is_symbol(close) {
                level -= 1;
            }
        }
        Ok(())
    }

    /// Opens a scope of variables.
    pub fn enter_scope(&mut self) {
        self.element_bytes.push(HashMap::new());
    }

    /// Closes the innermost scope.
    pub fn leave_scope(&mut self) {
        self.element_bytes.pop();
    }

    /// Remembers the size of the elements of array `name`.
    pub fn declare(&mut self, name: &'a str, bytes: u32) {
        if let Some(scope) = self.element_bytes.last_mut() {
            scope.insert(name, bytes);
        }
    }

    /// Bytes of an element of `name`; 1 for names not declared as variables.
    pub fn element_bytes(&self, name: &str) -> u32 {
        let mut scopes = self.element_bytes.iter().rev();
        scopes
            .find_map(|scope| scope.get(name).copied())
            .unwrap_or(1)
    }
}
