//! Lowering: from the syntax tree of a module to kernels that can be executed.
//!
//! Names become slots, opcodes become functions, and everything that the back end cannot do is
//! refused here, with its line, rather than met by a kernel that already runs. A kernel is lowered
//! together with the functions that it calls. Memory taken is proportional to the source, and
//! limited.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_wrap,
    reason = "lane functions reinterpret bits on purpose"
)]

mod addresses;
mod arithmetic;
mod atomics;
mod bits;
mod builder;
mod calls;
mod compare;
mod constants;
mod control;
mod convert;
mod copies;
mod dispatch;
mod element;
mod extreme;
mod family;
mod float;
mod form;
mod frame;
mod function;
mod half;
mod integer;
mod lowering;
mod memory;
mod moves;
mod operands;
mod parameters;
mod refusal;
mod scope;
mod signature;
mod special;
mod stack;
mod variables;
mod warp;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

pub(crate) use variables::{Segment, Variables};

use builder::ProgramBuilder;
use refusal::{Refusal, Result};

use crate::isa::Isa;
use crate::program::Program;
use crate::ptx::ast;

/// Operations, constants and statements of all kernels of a module, at most.
const OPERATIONS_MAX: usize = 1 << 20;
/// Kernels of a module, at most.
const KERNELS_MAX: usize = 4096;

/// Lowers every kernel of a module whose variables are placed already, or ends early when `stop` is
/// set.
pub(crate) fn lower(
    module: &ast::Module,
    variables: &Variables<'_>,
    isa: Isa,
    stop: &AtomicBool,
) -> Result<Vec<Program>> {
    let functions = definitions(module);
    let mut programs = Vec::new();
    let mut operations_left = OPERATIONS_MAX;
    for function in module.functions.iter().filter(|f| f.kernel) {
        if function.body.is_none() {
            continue;
        }
        if programs.len() == KERNELS_MAX {
            let reason = format!("the module has more than {KERNELS_MAX} kernels");
            return Err(Refusal::new(function.line, reason));
        }
        let left = &mut operations_left;
        programs.push(kernel(function, &functions, variables, (isa, stop), left)?);
    }
    Ok(programs)
}

/// Lowers kernel `entry` and the functions that it calls.
fn kernel(
    entry: &ast::Function,
    functions: &HashMap<&str, &ast::Function>,
    variables: &Variables<'_>,
    (isa, stop): (Isa, &AtomicBool),
    operations_left: &mut usize,
) -> Result<Program> {
    let mut program =
        ProgramBuilder::new(entry, functions, variables, (isa, stop), operations_left)?;
    let mut index = 0;
    while let Some(function) = program.function(index) {
        function::lower(&mut program, index, function)?;
        index += 1;
    }
    program.finish(entry)
}

/// Functions by name; definitions win over declarations.
fn definitions(module: &ast::Module) -> HashMap<&str, &ast::Function> {
    let mut functions = HashMap::new();
    for function in &module.functions {
        let entry = functions.entry(function.name.as_str()).or_insert(function);
        if entry.body.is_none() {
            *entry = function;
        }
    }
    functions
}
