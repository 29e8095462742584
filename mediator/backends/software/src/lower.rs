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
mod matrix;
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
mod system;
mod variables;
mod warp;

use std::cell::OnceCell;
use std::sync::atomic::AtomicBool;

pub(crate) use variables::{Segment, Variables};

use builder::ProgramBuilder;
use names::{Names, Symbol};
use refusal::{Refusal, Result};

use crate::address;
use crate::isa::Isa;
use crate::program::Program;
use crate::ptx::ast;

/// Operations, constants and statements of all kernels of a module, at most.
const OPERATIONS_MAX: usize = 1 << 20;
/// Kernels of a module, at most.
const KERNELS_MAX: usize = 4096;

/// Lowers every kernel of the modules, which are linked and whose variables are placed already, or
/// ends early when `stop` is set.
pub(crate) fn lower(
    modules: &[ast::Module],
    variables: &Variables<'_>,
    isa: Isa,
    stop: &AtomicBool,
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
        programs.push(kernel(index, &functions, variables, (isa, stop), left)?);
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

/// The functions of all modules that are linked.
#[derive(Debug)]
struct Functions<'a> {
    /// Definitions and declarations, each with the number of its module.
    all: Vec<(usize, &'a ast::Function)>,
    names: Names<'a>,
    inputs: usize,
    /// Numbers of the device functions whose addresses instructions use, once they are looked for.
    addressed: OnceCell<Vec<usize>>,
}

impl<'a> Functions<'a> {
    fn new(modules: &'a [ast::Module]) -> Result<Self> {
        let mut functions = Self {
            all: Vec::new(),
            names: Names::new(modules.len()),
            inputs: modules.len(),
            addressed: OnceCell::new(),
        };
        for (input, module) in modules.iter().enumerate() {
            for function in &module.functions {
                let defined = function.body.is_some();
                let symbol = Symbol {
                    input,
                    line: function.line,
                    name: &function.name,
                    linkage: match function.linkage {
                        // Programs find kernels by name, whether visible or not.
                        ast::Linkage::Static if function.kernel => ast::Linkage::Visible,
                        linkage => linkage,
                    },
                    defined,
                    bytes: 0,
                };
                let added = functions.names.add(symbol, functions.all.len());
                added.map_err(|refusal| functions.refusal_within(input, refusal))?;
                functions.all.push((input, function));
            }
        }
        Ok(functions)
    }

    /// Returns the number and the function that `name` stands for in module `input`.
    fn get(&self, input: usize, name: &str) -> Option<(usize, &'a ast::Function)> {
        let index = self.names.get(input, name)?;
        Some((index, self.all[index].1))
    }

    /// Returns what stands for the address of function number `index`.
    fn address(index: usize) -> u64 {
        address::FUNCTIONS.start + 16 * (index as u64 + 1)
    }

    /// Returns the numbers of the device functions that a call through a register may mean: those
    /// whose names are operands of instructions, calls aside.
    fn addressed(&self) -> &[usize] {
        self.addressed.get_or_init(|| {
            let mut found = Vec::new();
            for (input, function) in &self.all {
                let mut name = |name: &str| {
                    found.extend(self.names.get(*input, name).filter(|index| {
                        let (_, function) = self.all[*index];
                        !function.kernel && function.body.is_some()
                    }));
                };
                each_name(function.body.as_deref().unwrap_or_default(), &mut name);
            }
            found.sort_unstable();
            found.dedup();
            found
        })
    }

    /// Adds to a refusal which module its line is in, if there are several.
    fn refusal_within(&self, input: usize, refusal: Refusal) -> Refusal {
        within_input(input, self.inputs, refusal)
    }
}

/// Calls `take` with each name that is the source of a move.
fn each_name(statements: &[ast::Statement], take: &mut impl FnMut(&str)) {
    for statement in statements {
        match statement {
            ast::Statement::Block(inner) => each_name(inner, take),
            ast::Statement::Instruction(instruction)
                if matches!(instruction.opcode.as_str(), "mov" | "st" | "selp") =>
            {
                for operand in &instruction.operands {
                    if let ast::Operand::Name(name) = operand {
                        take(name);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Adds to a refusal that its line is in module `input` of `inputs`.
pub(crate) fn within_input(input: usize, inputs: usize, refusal: Refusal) -> Refusal {
    if inputs == 1 {
        return refusal;
    }
    let reason = format!("input {} of {inputs}: {}", input + 1, refusal.reason);
    Refusal::new(refusal.line, reason)
}
