//! The body of a function: statements, blocks, labels.

use super::Refusal;
use super::addresses::Address;
use super::dispatch;
use super::frame::{Class, Frame};
use super::kernel::Kernel;
use super::scope::{Home, Scopes};
use super::signature;
use super::variables::variable_bytes;
use crate::exec::predicate;
use crate::program::{Action, Exec, FrameBytes, Guard, Op, Slot};
use crate::ptx::ast::{Function, Instruction, ScalarType, StateSpace, Statement, Variable};

/// A function being lowered.
pub(super) struct Lowering<'k, 'a> {
    /// The program that it becomes a part of.
    pub(super) kernel: &'k mut Kernel<'a>,
    /// Its number in the program.
    pub(super) number: usize,
    /// Whether it is the kernel itself.
    pub(super) is_kernel: bool,
    /// Its slots.
    pub(super) frame: Frame,
    /// Its names.
    pub(super) scopes: Scopes,
    /// Line of the current instruction.
    pub(super) line: u32,
    /// Predicate of the current instruction.
    guard: Option<Guard>,
    /// Positions of labels, once known.
    labels: Vec<Option<u32>>,
    /// Branches to labels, to be resolved.
    branches: Vec<(usize, u32)>,
    /// Tables with labels, to be resolved.
    tables: Vec<(usize, Vec<u32>)>,
    /// The carry of the extended-precision instructions, if used.
    carry: Option<Slot>,
    leader: bool,
}

/// Lowers one function of the program; gives the size of its frame. `homes`: parameters of a kernel.
pub(super) fn lower(
    kernel: &mut Kernel<'_>,
    number: usize,
    function: &Function,
    homes: &[(String, Home)],
) -> Result<FrameBytes, Refusal> {
    let mut lowering = Lowering {
        kernel,
        number,
        is_kernel: function.kernel,
        frame: Frame::new(),
        scopes: Scopes::new(),
        line: function.line,
        guard: None,
        labels: Vec::new(),
        branches: Vec::new(),
        tables: Vec::new(),
        carry: None,
        leader: true,
    };
    for (name, home) in homes {
        lowering.scopes.declare_variable(name, *home);
    }
    if !function.kernel {
        signature::declare(function, &mut lowering.frame, &mut lowering.scopes)?;
    }
    lowering.block(function.body.as_deref().unwrap_or_default())?;
    lowering.guard = None;
    lowering.emit(Action::Return)?;
    lowering.resolve();
    Ok(FrameBytes {
        registers: lowering.frame.registers(),
        local: lowering.frame.local(),
    })
}

impl Lowering<'_, '_> {
    fn block(&mut self, statements: &[Statement]) -> Result<(), Refusal> {
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

    fn statement(&mut self, statement: &Statement) -> Result<(), Refusal> {
        self.kernel.take(1, self.line)?;
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

    fn variable(&mut self, variable: &Variable) -> Result<(), Refusal> {
        let home = match variable.space {
            StateSpace::Shared => self.kernel.shared_variable(variable)?,
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

    fn instruction(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        self.line = instruction.line;
        self.guard = None;
        if let Some(guard) = &instruction.guard {
            let slot = self.predicate_register(&guard.register)?;
            let invert = u32::from(guard.negated).wrapping_neg();
            self.guard = Some(Guard { slot, invert });
        }
        dispatch::instruction(self, instruction)?;
        self.kernel.instructions += 1;
        self.frame.end_instruction();
        Ok(())
    }

    fn table(&mut self, name: &str, labels: &[String], line: u32) -> Result<(), Refusal> {
        self.kernel.take(labels.len(), line)?;
        let targets = labels.iter().map(|label| {
            let missing = || Refusal::new(line, format!("no label `{label}` in this function"));
            self.scopes.label(label).ok_or_else(missing)
        });
        let targets = targets.collect::<Result<Vec<u32>, Refusal>>()?;
        let index = self.kernel.tables.len();
        self.kernel.tables.push(Vec::new());
        self.tables.push((index, targets));
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.scopes.declare_table(name, index);
        Ok(())
    }

    /// Replaces labels by positions.
    fn resolve(&mut self) {
        let position = |label: u32| self.labels[label as usize].unwrap_or(0);
        for (index, label) in &self.branches {
            self.kernel.code[*index].action = Action::Branch(position(*label));
        }
        for (index, labels) in &self.tables {
            self.kernel.tables[*index] = labels.iter().map(|l| position(*l)).collect();
        }
    }

    fn position(&self) -> u32 {
        u32::try_from(self.kernel.code.len()).unwrap_or(u32::MAX)
    }

    /// An operation of the current instruction, without operands.
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
            ordinal: self.kernel.instructions,
            leader: false,
        }
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, mut op: Op) -> Result<(), Refusal> {
        op.leader = self.leader;
        // Whoever does not follow a jump, a call, a barrier goes on behind it, and may meet others there.
        self.leader = !matches!(op.action, Action::Lanes(_));
        self.kernel.push(op)
    }

    /// Adds an operation without operands.
    pub(super) fn emit(&mut self, action: Action) -> Result<(), Refusal> {
        self.push(self.op(action))
    }

    /// Adds `dst = execute(a, b, c)`, with as many sources as given.
    pub(super) fn compute(
        &mut self,
        execute: Exec,
        dst: Slot,
        sources: &[Slot],
    ) -> Result<(), Refusal> {
        let source = |index: usize| sources.get(index).copied().unwrap_or_default();
        let op = Op {
            dst,
            a: source(0),
            b: source(1),
            c: source(2),
            ..self.op(Action::Lanes(execute))
        };
        self.push(op)
    }

    /// Adds a branch to a label.
    pub(super) fn branch(&mut self, label: &str) -> Result<(), Refusal> {
        let label = self.scopes.label(label).ok_or_else(|| {
            Refusal::new(self.line, format!("no label `{label}` in this function"))
        })?;
        self.branches.push((self.kernel.code.len(), label));
        self.emit(Action::Branch(0))
    }

    /// The carry flag of this function.
    pub(super) fn carry(&mut self) -> Result<Slot, Refusal> {
        match self.carry {
            Some(slot) => Ok(slot),
            None => {
                let slot = self.frame.register(Class::Predicate, self.line)?;
                self.carry = Some(slot);
                Ok(slot)
            }
        }
    }

    /// A register for the rest of the current instruction.
    pub(super) fn scratch(&mut self, class: Class) -> Result<Slot, Refusal> {
        self.frame.scratch(class, self.line)
    }

    /// Adds the load of a byte for those lanes of the instruction for which `holds` is true.
    pub(super) fn guarded_load(
        &mut self,
        holds: Slot,
        address: Address,
        dst: Slot,
    ) -> Result<(), Refusal> {
        let outer = self.guard;
        // Where the instruction itself does not run, `holds` was not computed: it must not count.
        let both = self.scratch(Class::Predicate)?;
        let unguarded = self.guard.take();
        if let Some(guard) = unguarded {
            let op = Op {
                dst: both,
                a: guard.slot,
                b: holds,
                imm: u64::from(guard.invert & 1),
                ..self.op(Action::Lanes(predicate::and))
            };
            self.push(op)?;
        }
        let slot = if unguarded.is_some() { both } else { holds };
        self.guard = Some(Guard { slot, invert: 0 });
        let loaded = self.load_element(address, (ScalarType::B8, Class::Word), dst, 1);
        self.guard = outer;
        loaded
    }
}
