//! PTX as text: from characters to a syntax tree. What instructions mean is decided when they are lowered.
//!
//! The text comes from a guest. Parsing takes time and memory proportional to its length, whatever it says:
//! sizes and counts are numbers in the tree, never allocations. Nesting and the size of the tree are bounded.

pub mod ast;
mod cursor;
mod error;
mod expressions;
mod lexer;
mod module;
mod number;
mod operands;
mod statements;
mod variables;

pub use error::ParseError;

/// Reads a module. A NUL ends the text, as modules are handed over as C strings.
///
/// # Errors
/// [`ParseError`] for the first thing that is not PTX, or that the software back end does not take.
///
/// # Examples
/// ```
/// let text = ".version 8.0 .target sm_70 .visible .entry nothing() { ret; }";
/// let module = causeway_software::ptx::parse(text)?;
/// assert_eq!(module.functions[0].name, "nothing");
/// # Ok::<(), causeway_software::ptx::ParseError>(())
/// ```
pub fn parse(text: &str) -> Result<ast::Module, ParseError> {
    module::module(text)
}

#[cfg(test)]
mod tests;
