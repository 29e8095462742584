//! The functions of modules that are linked.

use std::cell::OnceCell;

use super::names::{Names, Symbol};
use super::refusal::{Refusal, Result, within_input};
use crate::address;
use crate::ptx::ast;

/// The functions of all modules that are linked.
#[derive(Debug)]
pub(super) struct Functions<'a> {
    /// Definitions and declarations, each with the number of its module.
    pub(super) all: Vec<(usize, &'a ast::Function)>,
    pub(super) names: Names<'a>,
    inputs: usize,
    /// Numbers of the device functions whose addresses instructions use, once they are looked for.
    addressed: OnceCell<Vec<usize>>,
}

impl<'a> Functions<'a> {
    pub(super) fn new(modules: &'a [ast::Module]) -> Result<Self> {
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
    pub(super) fn get(&self, input: usize, name: &str) -> Option<(usize, &'a ast::Function)> {
        let index = self.names.get(input, name)?;
        Some((index, self.all[index].1))
    }

    /// Returns what stands for the address of function number `index`.
    pub(super) fn address(index: usize) -> u64 {
        address::FUNCTIONS.start + 16 * (index as u64 + 1)
    }

    /// Returns the numbers of the device functions that a call through a register may mean: those
    /// whose names are operands of instructions, calls aside.
    pub(super) fn addressed(&self) -> &[usize] {
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
    pub(super) fn refusal_within(&self, input: usize, refusal: Refusal) -> Refusal {
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
