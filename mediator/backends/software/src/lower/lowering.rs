//! A function being lowered: its names, its registers, and the operations that are added to it.

use super::builder::ProgramBuilder;
use super::frame::{Class, Frame};
use super::refusal::{Refusal, Result};
use super::scope::Scopes;
use crate::meaning::Meaning;
use crate::program::{Action, Exec, Op};
use crate::ptx::ast::Function;
use crate::registers::{Guard, Slot};

/// A function being lowered.
pub(super) struct Lowering<'k, 'a> {
    /// Program to which the operations of the function are added.
    pub(super) program: &'k mut ProgramBuilder<'a>,
    /// Number of the function in the program.
    pub(super) number: usize,
    /// Whether the function is the kernel itself.
    pub(super) is_kernel: bool,
    /// Registers and local memory of the function.
    pub(super) frame: Frame,
    /// Names that the function has declared.
    pub(super) scopes: Scopes,
    /// Source line of the current instruction.
    pub(super) line: u32,
    /// Predicate of the current instruction; `None` if all lanes execute it.
    pub(super) guard: Option<Guard>,
    /// Position of each label; `None` until the label is reached.
    pub(super) labels: Vec<Option<u32>>,
    /// Positions of branches, with the labels that replace their targets at the end.
    pub(super) branches: Vec<(usize, u32)>,
    /// Indices of tables of targets, with the labels that fill them at the end.
    pub(super) tables: Vec<(usize, Vec<u32>)>,
    /// The carry of the extended-precision instructions, if used.
    carry: Option<Slot>,
    /// Whether other groups of lanes may wait at the next operation.
    pub(super) leader: bool,
}

impl<'k, 'a> Lowering<'k, 'a> {
    /// Creates a function without operations and names.
    pub(super) fn new(
        program: &'k mut ProgramBuilder<'a>,
        number: usize,
        function: &Function,
    ) -> Self {
        Self {
            program,
            number,
            is_kernel: function.kernel,
            frame: Frame::new(),
            scopes: Scopes::default(),
            line: function.line,
            guard: None,
            labels: Vec::new(),
            branches: Vec::new(),
            tables: Vec::new(),
            carry: None,
            leader: true,
        }
    }
}

impl Lowering<'_, '_> {
    /// Returns the position of the next operation.
    pub(super) fn position(&self) -> u32 {
        u32::try_from(self.program.code.len()).unwrap_or(u32::MAX)
    }

    /// Returns an operation of the current instruction, without operands.
    pub(super) fn op(&self, action: Action) -> Op {
        Op {
            action,
            guard: self.guard,
            dst: Slot::default(),
            dst2: Slot::default(),
            a: Slot::default(),
            b: Slot::default(),
            c: Slot::default(),
            d: Slot::default(),
            imm: 0,
            line: self.line,
            ordinal: self.program.instructions,
            leader: false,
            meaning: None,
            run: 0,
        }
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, mut op: Op) -> Result {
        op.leader = self.leader;
        // Lanes that do not follow a jump, a call or a barrier go on behind it, and may meet others
        // there.
        self.leader = !matches!(op.action, Action::Lanes(_));
        self.program.push(op)
    }

    /// Adds an operation without operands.
    pub(super) fn emit(&mut self, action: Action) -> Result {
        self.push(self.op(action))
    }

    /// Adds `dst = execute(a, b, c)`, with as many sources as given.
    pub(super) fn compute(&mut self, execute: Exec, dst: Slot, sources: &[Slot]) -> Result {
        self.compute_with(execute, dst, sources, 0)
    }

    /// Adds `dst = execute(a, b, c, imm)`, with as many sources as given.
    pub(super) fn compute_with(
        &mut self,
        execute: Exec,
        dst: Slot,
        sources: &[Slot],
        imm: u64,
    ) -> Result {
        self.compute_as(None, (execute, imm), dst, sources)
    }

    /// Adds `dst = execute(a, b, c, imm)` as [`Self::compute_with`] does, with what that means.
    pub(super) fn compute_as(
        &mut self,
        meaning: Option<Meaning>,
        (execute, imm): (Exec, u64),
        dst: Slot,
        sources: &[Slot],
    ) -> Result {
        let source = |index: usize| sources.get(index).copied().unwrap_or_default();
        self.push(Op {
            dst,
            a: source(0),
            b: source(1),
            c: source(2),
            imm,
            meaning,
            ..self.op(Action::Lanes(execute))
        })
    }

    /// Adds a comparison of two sources that gives `truths`: the outcome, and the opposite.
    pub(super) fn compare(
        &mut self,
        execute: Exec,
        truths: [Slot; 2],
        [a, b]: [Slot; 2],
    ) -> Result {
        let [dst, dst2] = truths;
        self.push(Op {
            dst,
            dst2,
            a,
            b,
            ..self.op(Action::Lanes(execute))
        })
    }

    /// Adds a branch to a label.
    pub(super) fn branch(&mut self, label: &str) -> Result {
        let label = self.label(label, self.line)?;
        self.branches.push((self.program.code.len(), label));
        self.emit(Action::Branch(0))
    }

    /// Returns the label `name`, which `line` mentions.
    pub(super) fn label(&self, name: &str, line: u32) -> Result<u32> {
        let missing = || Refusal::new(line, format!("label `{name}` is not in this function"));
        self.scopes.label(name).ok_or_else(missing)
    }

    /// Returns the predicate register that holds the carry flag of this function.
    pub(super) fn carry(&mut self) -> Result<Slot> {
        match self.carry {
            Some(slot) => Ok(slot),
            None => {
                let slot = self.frame.register(Class::Predicate, self.line)?;
                self.carry = Some(slot);
                Ok(slot)
            }
        }
    }

    /// Returns a register that is free again at the end of the current instruction.
    pub(super) fn scratch(&mut self, class: Class) -> Result<Slot> {
        self.frame.scratch(class, self.line)
    }
}
