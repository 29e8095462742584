//! The parser: from PTX text to a syntax tree. Lowering decides later what instructions mean.
//!
//! The text comes from a guest. Parsing takes time and memory proportional to its length, whatever
//! it says: sizes and counts are numbers in the tree, never allocations. Nesting and the size of
//! the tree are bounded.

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

/// Parses the text of a PTX module. The text ends at its first NUL byte, if it contains one,
/// because CUDA programs pass PTX as a C string.
///
/// # Errors
/// [`ParseError`] names the first place that is not PTX, or that the software back end does not
/// support.
///
/// # Examples
/// ```
/// let text = ".version 8.0 .target sm_70 .visible .entry nothing() { ret; }";
/// let module = causeway_software::ptx::parse(text)?;
/// assert_eq!(module.functions[0].name, "nothing");
/// # Ok::<(), causeway_software::ptx::ParseError>(())
/// ```
pub fn parse(text: &str) -> Result<ast::Module, ParseError> {
    module::module(text, &mut { cursor::TREE_BYTES_MAX })
}

/// Parses the texts of modules that are linked, as [`parse`] does for one. Together they may take
/// as much memory as one. An error comes with the index of its text.
pub(crate) fn parse_all(texts: &[&str]) -> Result<Vec<ast::Module>, (usize, ParseError)> {
    let mut tree_bytes_left = cursor::TREE_BYTES_MAX;
    let parsed = texts.iter().enumerate().map(|(index, text)| {
        module::module(text, &mut tree_bytes_left).map_err(|error| (index, error))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests;
