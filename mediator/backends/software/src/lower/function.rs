//! The body of a function: statements, blocks, labels.

use super::builder::ProgramBuilder;
use super::dispatch;
use super::lowering::Lowering;
use super::refusal::{Refusal, Result};
use super::scope::Home;
use super::signature;
use super::variables::variable_bytes;
use crate::program::Action;
use crate::ptx::ast::{Function, Instruction, StateSpace, Statement, Variable};
use crate::registers::{FrameBytes, Guard};

/// Lowers function number `number` of the program, adds its operations, and notes its frame.
pub(super) fn lower<'a>(
    program: &mut ProgramBuilder<'a>,
    number: usize,
    function: &'a Function,
) -> Result {
    program.begin_function(number);
    let mut lowering = Lowering::new(program, number, function);
    if function.kernel {
        for (name, home) in &lowering.program.layout.homes {
            lowering.scopes.declare_variable(name, *home);
        }
    } else {
        signature::declare(function, &mut lowering.frame, &mut lowering.scopes)?;
    }
    lowering.block(function.body.as_deref().unwrap_or_default())?;
    lowering.guard = None;
    lowering.emit(Action::Return)?;
    lowering.resolve();
    let frame = FrameBytes {
        registers: lowering.frame.registers(),
        local: lowering.frame.local(),
    };
    program.end_function(number, frame);
    Ok(())
}

impl Lowering<'_, '_> {
    fn block(&mut self, statements: &[Statement]) -> Result {
        for statement in statements {
            if let Statement::Label { name, .. } = statement {
                let label = u32::try_from(self.labels.len()).unwrap_or(u32::MAX);
                self.labels.push(None);
                self.scopes.declare_label(name, label);
            }
        }
        // Tables may be declared behind the branch that uses them.
        for statement in statements {
            if let Statement::BranchTargets { name, labels, line } = statement {
                self.table(name, labels, *line)?;
            }
        }
        statements.iter().try_for_each(|s| self.statement(s))
    }

    fn statement(&mut self, statement: &Statement) -> Result {
        self.program.take(1, self.line)?;
        match statement {
            Statement::Label { name, .. } => {
                if let Some(label) = self.scopes.label(name) {
                    self.labels[label as usize] = Some(self.position());
                    self.leader = true;
                }
                Ok(())
            }
            Statement::Registers(registers) => {
                self.scopes.declare_registers(registers);
                Ok(())
            }
            Statement::Variable(variable) => self.variable(variable),
            Statement::Instruction(instruction) => self.instruction(instruction),
            Statement::BranchTargets { .. } | Statement::CallPrototype { .. } => Ok(()),
            Statement::Block(statements) => {
                self.scopes.enter();
                let result = self.block(statements);
                self.scopes.leave();
                result
            }
        }
    }

    fn variable(&mut self, variable: &Variable) -> Result {
        let home = match variable.space {
            StateSpace::Shared => self.program.shared_variable(variable)?,
            StateSpace::Local | StateSpace::Param => {
                let bytes = variable_bytes(variable)?;
                let align = variable.align;
                let offset = self.frame.local_memory(bytes, align, variable.line)?;
                Home::Local(offset, u32::try_from(bytes).unwrap_or(0))
            }
            StateSpace::Global | StateSpace::Const => {
                let reason = format!(
                    "variable `{}`: global and constant variables belong at module scope",
                    variable.name
                );
                return Err(Refusal::new(variable.line, reason));
            }
        };
        self.scopes.declare_variable(&variable.name, home);
        Ok(())
    }

    fn instruction(&mut self, instruction: &Instruction) -> Result {
        self.line = instruction.line;
        self.guard = None;
        if let Some(guard) = &instruction.guard {
            let slot = self.predicate_register(&guard.register)?;
            let invert = u32::from(guard.negated).wrapping_neg();
            self.guard = Some(Guard { slot, invert });
        }
        dispatch::instruction(self, instruction)?;
        self.program.instructions += 1;
        self.frame.end_instruction();
        Ok(())
    }

    fn table(&mut self, name: &str, labels: &[String], line: u32) -> Result {
        self.program.take(labels.len(), line)?;
        let targets = labels.iter().map(|label| self.label(label, line));
        let targets = targets.collect::<Result<Vec<u32>>>()?;
        let index = self.program.tables.len();
        self.program.tables.push(Vec::new());
        self.tables.push((index, targets));
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.scopes.declare_table(name, index);
        Ok(())
    }

    /// Replaces labels by positions.
    fn resolve(&mut self) {
        let position = |label: u32| self.labels[label as usize].unwrap_or(0);
        for (index, label) in &self.branches {
            self.program.code[*index].action = Action::Branch(position(*label));
        }
        for (index, labels) in &self.tables {
            self.program.tables[*index] = labels.iter().map(|l| position(*l)).collect();
        }
    }
}
