//! Where the parser stands: one token of look-ahead, nesting depth, and the sizes of variables in
//! scope.

use std::collections::HashMap;

use super::ast::ScalarType;
use super::error::{ParseError, Result, shorten};
use super::lexer::{Lexer, Token, TokenKind};
use super::number;

/// Nesting of blocks, initializers and expressions together. Compilers stay below ten; the bound
/// keeps the recursion of the parser, and of the code that walks or drops the tree, within a small
/// stack.
const DEPTH_MAX: u32 = 64;

/// Bytes of the trees that one module, or several that are linked, may make, as [`Cursor::charge`]
/// counts them. The tree of a real module is some 30 times as large as its text, and lives until
/// the module has been lowered; text made to be costly reaches 100 times.
pub(super) const TREE_BYTES_MAX: usize = 128 << 20;
/// What an allocation costs beside its content.
const ALLOCATION_BYTES: usize = 16;

/// Walks over the tokens of a module, one after the other.
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
    /// Creates a cursor at the first token of `text`, whose tree may take `tree_bytes` bytes.
    pub fn new(text: &'a str, tree_bytes: usize) -> Result<Self> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        Ok(Self {
            lexer,
            token,
            depth: 0,
            tree_bytes_left: tree_bytes,
            element_bytes: vec![HashMap::new()],
        })
    }

    /// Returns the bytes of the tree that may still be made.
    pub fn tree_bytes_left(&self) -> usize {
        self.tree_bytes_left
    }

    /// Returns the token at the cursor without taking it.
    pub fn peek(&self) -> &Token<'a> {
        &self.token
    }

    /// Returns the line of the token at the cursor, from 1.
    pub fn line(&self) -> u32 {
        self.token.line
    }

    /// Takes the token at the cursor, whatever its kind, and returns it.
    pub fn take(&mut self) -> Result<Token<'a>> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    /// Takes the token at the cursor if it is the symbol `symbol`, and returns whether it was.
    pub fn eat(&mut self, symbol: &str) -> Result<bool> {
        let here = self.token.is_symbol(symbol);
        if here {
            self.take()?;
        }
        Ok(here)
    }

    /// Takes the token at the cursor if it is `.name`, and returns whether it was.
    pub fn eat_dotted(&mut self, name: &str) -> Result<bool> {
        let here = self.token.is_dotted(name);
        if here {
            self.take()?;
        }
        Ok(here)
    }

    /// Takes the symbol `symbol`. Another token is an error, whose message is "expected `symbol`"
    /// and then `after`.
    pub fn expect(&mut self, symbol: &str, after: &str) -> Result {
        if self.eat(symbol)? {
            return Ok(());
        }
        Err(self.expected(&format!("`{symbol}` {after}")))
    }

    /// Reads one item or more with `item`, separated by commas, and takes the symbol `close` behind
    /// them. Another token behind an item is an error, whose message ends with `after`, a name for
    /// the items.
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

    /// Takes a word and returns it. Another token is an error, whose message says that `what` was
    /// expected.
    pub fn word(&mut self, what: &str) -> Result<&'a str> {
        self.kind(TokenKind::Word, what)
    }

    /// Takes a string in quotes and returns it without them. Another token is an error, whose
    /// message says that `what` was expected.
    pub fn string(&mut self, what: &str) -> Result<&'a str> {
        self.kind(TokenKind::Text, what)
    }

    /// Takes a token of kind `kind` and returns its text. Another token is an error, whose message
    /// says that `what` was expected.
    pub fn kind(&mut self, kind: TokenKind, what: &str) -> Result<&'a str> {
        if self.token.kind != kind {
            return Err(self.expected(what));
        }
        Ok(self.take()?.text)
    }

    /// Takes an integer literal below 2^32 and returns it. Another token is an error, whose message
    /// says that `what` was expected.
    pub fn number_u32(&mut self, what: &str) -> Result<u32> {
        if self.token.kind != TokenKind::Number {
            return Err(self.expected(what));
        }
        let bits = number::literal(&self.token)?.bits();
        let value = bits.and_then(|bits| u32::try_from(bits).ok());
        let value = value.ok_or_else(|| self.expected(&format!("{what} below 2^32")))?;
        self.take()?;
        Ok(value)
    }

    /// Takes a type such as `.b32` and returns it. Another token is an error.
    pub fn scalar_type(&mut self) -> Result<ScalarType> {
        if self.token.kind == TokenKind::Dotted
            && let Some(scalar) = ScalarType::from_modifier(self.token.text)
        {
            self.take()?;
            return Ok(scalar);
        }
        Err(self.expected("a fundamental type such as `.b32` or `.f32`"))
    }

    /// Returns the error that `what` was expected and another token is at the cursor.
    pub fn expected(&self, what: &str) -> ParseError {
        ParseError::expected(&self.token, what)
    }

    /// Returns an error at the cursor whose message is `reason`.
    pub fn error(&self, reason: impl Into<String>) -> ParseError {
        ParseError::at(&self.token, reason)
    }

    /// Returns the error that the directive at the cursor is not known `place`.
    pub fn unknown_directive(&self, place: &str) -> ParseError {
        let shown = shorten(self.token.text);
        self.error(format!("the directive `.{shown}` is not known {place}"))
    }

    /// Calls `inside` one level of nesting deeper, and returns its result. More than [`DEPTH_MAX`]
    /// levels are an error.
    pub fn nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("nested more than {DEPTH_MAX} levels deep")));
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    /// Counts a node of type `T` that owns a copy of `text` towards the size of the syntax tree. A
    /// tree of more than [`TREE_BYTES_MAX`] bytes is an error.
    pub fn charge<T>(&mut self, text: &str) -> Result {
        let bytes = size_of::<T>() + ALLOCATION_BYTES + text.len();
        let left = self.tree_bytes_left.checked_sub(bytes);
        self.tree_bytes_left = left.ok_or_else(|| {
            let mib = TREE_BYTES_MAX >> 20;
            self.error(format!(
                "the syntax tree of the module exceeds {mib} MiB: split the module"
            ))
        })?;
        Ok(())
    }

    /// Skips the tokens from the symbol `open` to the matching `close`, including both.
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

    /// Opens a scope for the names of variables.
    pub fn enter_scope(&mut self) {
        self.element_bytes.push(HashMap::new());
    }

    /// Closes the innermost scope and forgets the variables declared in it.
    pub fn leave_scope(&mut self) {
        self.element_bytes.pop();
    }

    /// Notes in the innermost scope that each element of the variable `name` has `bytes` bytes.
    pub fn declare(&mut self, name: &'a str, bytes: u32) {
        if let Some(scope) = self.element_bytes.last_mut() {
            scope.insert(name, bytes);
        }
    }

    /// Returns the bytes of an element of the variable `name`; 1 if no variable of that name is
    /// known.
    pub fn element_bytes(&self, name: &str) -> u32 {
        let mut scopes = self.element_bytes.iter().rev();
        *scopes.find_map(|scope| scope.get(name)).unwrap_or(&1)
    }
}
