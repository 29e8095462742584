//! Functions in PTX that the back end adds to modules which declare them and define them nowhere.

use crate::ptx::ast::{Function, Module};
use crate::ptx::{ParseError, parse};

/// How the names of all these functions begin.
const PREFIX: &str = "cudaCG";

/// Adds to the first of the modules, which are linked, the functions that they lack.
pub(crate) fn add_to(modules: &mut [Module]) -> Result<(), ParseError> {
    let lacks = |function: &Function| function.body.is_none() && function.name.starts_with(PREFIX);
    if !modules.iter().flat_map(|m| &m.functions).any(lacks) {
        return Ok(());
    }
    let mut library = parse(include_str!("library.ptx"))?.functions;
    library.retain(|function| {
        let named = modules.iter().flat_map(|m| &m.functions);
        let mut named = named.filter(|f| f.name == function.name).peekable();
        named.peek().is_some() && named.all(|f| f.body.is_none())
    });
    if let Some(first) = modules.first_mut() {
        first.functions.append(&mut library);
    }
    Ok(())
}
