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
mod functions;
mod half;
mod integer;
mod lowering;
mod matrix;
mod mbarrier;
mod memory;
mod moves;
mod names;
mod operands;
mod parameters;
mod refusal;
mod scope;
mod signature;
mod special;
mod stack;
mod surface;
mod system;
mod texture;
mod variables;
mod video;
mod warp;
mod whole;

use std::sync::atomic::AtomicBool;

pub(crate) use refusal::within_input;
pub(crate) use variables::Variables;

use builder::ProgramBuilder;
use functions::Functions;
use refusal::{Refusal, Result};

use crate::isa::Isa;
use crate::program::Program;
use crate::ptx::ast;

/// Operations, constants and statements of all kernels of a module, at most.
const OPERATIONS_MAX: usize = 1 << 20;
/// Kernels of a module, at most.
const KERNELS_MAX: usize = 4096;

/// Lowers every kernel of the modules, which are linked and whose variables are placed already, or
/// ends early when `stop` is set. Calls `keep` with each kernel, which refuses it if the session
/// has too little memory left.
pub(crate) fn lower(
    modules: &[ast::Module],
    variables: &Variables<'_>,
    isa: Isa,
    stop: &AtomicBool,
    mut keep: impl FnMut(&mut Program) -> Result,
) -> Result<Vec<Program>> {
    let functions = Functions::new(modules)?;
    let mut programs = Vec::new();
    let mut operations_left = OPERATIONS_MAX;
    for (index, (input, function)) in functions.all.iter().enumerate() {
        let counts = functions.names.get(*input, &function.name) == Some(index);
        if !function.kernel || function.body.is_none() || !counts {
            continue;
        }
        if programs.len() == KERNELS_MAX {
            let reason = format!("the module has more than {KERNELS_MAX} kernels");
            return Err(Refusal::new(function.line, reason));
        }
        let left = &mut operations_left;
        let mut program = kernel(index, &functions, variables, (isa, stop), left)?;
        keep(&mut program)?;
        programs.push(program);
    }
    Ok(programs)
}

/// Lowers kernel number `entry` of the functions, and the functions that it calls.
fn kernel(
    entry: usize,
    functions: &Functions<'_>,
    variables: &Variables<'_>,
    (isa, stop): (Isa, &AtomicBool),
    operations_left: &mut usize,
) -> Result<Program> {
    let (input, function) = functions.all[entry];
    let within = |input| move |refusal| functions.refusal_within(input, refusal);
    let mut program =
        ProgramBuilder::new(entry, functions, variables, (isa, stop), operations_left)
            .map_err(within(input))?;
    let mut index = 0;
    while let Some((input, function)) = program.function(index) {
        function::lower(&mut program, index, function).map_err(within(input))?;
        index += 1;
    }
    program.finish(function).map_err(within(input))
}
