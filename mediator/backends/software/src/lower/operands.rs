//! Operands: from what is written to slots.

use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::{Refusal, Result};
use super::scope::{Home, Register};
use super::special;
use super::variables::number_bits;
use crate::exec::special::{self as registers, Special};
use crate::exec::{binary, predicate, unary};
use crate::meaning::Meaning;
use crate::program::Exec;
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::{Guard, Slot};

impl Lowering<'_, '_> {
    /// Returns a refusal of the current line.
    pub(super) fn refuse(&self, reason: impl Into<String>) -> Refusal {
        Refusal::new(self.line, reason)
    }

    /// Returns a register of a class in which all lanes hold `value`.
    pub(super) fn constant(&mut self, value: u64, class: Class) -> Result<Slot> {
        self.program.constants.value(value, class, self.line)
    }

    /// Returns the register `name`; `None` if the name is not that of a register.
    pub(super) fn register(&mut self, name: &str) -> Result<Option<Register>> {
        self.scopes.register(&mut self.frame, name, self.line)
    }

    /// Returns where the variable `name` is; `None` if the name is not that of a variable.
    pub(super) fn variable_home(&mut self, name: &str) -> Result<Option<Home>> {
        match self.scopes.variable(name) {
            Some(home) => Ok(Some(home)),
            None => self.program.module_variable(self.number, name, self.line),
        }
    }

    /// Returns a register with the value of a source operand. A register operand must have the
    /// class of `scalar`.
    pub(super) fn source(&mut self, operand: &Operand, scalar: ScalarType) -> Result<Slot> {
        let wanted = Class::of(scalar);
        if wanted == Class::Quad && !matches!(operand, Operand::Name(_)) {
            return Err(self.refuse("a 128-bit operand must be a register"));
        }
        match operand {
            Operand::Immediate(number) => {
                let bits = number_bits(*number, scalar);
                self.constant(bits as u64, wanted)
            }
            Operand::Name(name) => match self.register(name)? {
                Some(register) => self.expect(register, wanted, name),
                None if wanted == Class::Quad || wanted == Class::Predicate => {
                    Err(self.refuse(format!("`{name}` is not a register")))
                }
                None => self.named_value(name, 0, wanted),
            },
            Operand::NameOffset { name, offset } => self.named_value(name, *offset, wanted),
            _ => Err(self.refuse("an operand must be a register, a number or a name")),
        }
    }

    /// Returns registers with the values of source operands, as [`Self::source`] does for one.
    pub(super) fn sources<const N: usize>(
        &mut self,
        operands: [&Operand; N],
        types: [ScalarType; N],
    ) -> Result<[Slot; N]> {
        let mut slots = [Slot::default(); N];
        for (slot, (operand, scalar)) in slots.iter_mut().zip(operands.into_iter().zip(types)) {
            *slot = self.source(operand, scalar)?;
        }
        Ok(slots)
    }

    /// Returns a register with the value of a source operand. A register operand may be wider than
    /// `scalar`; then its low bits count.
    pub(super) fn source_relaxed(&mut self, operand: &Operand, scalar: ScalarType) -> Result<Slot> {
        if let Operand::Name(name) = operand
            && let Some(register) = self.register(name)?
            && register.class == Class::Double
            && Class::of(scalar) == Class::Word
        {
            let word = self.scratch(Class::Word)?;
            let narrow = unary(self.program.isa, |a: u64| a as u32);
            self.compute(narrow, word, &[register.slot])?;
            return Ok(word);
        }
        self.source(operand, scalar)
    }

    /// Returns the register for a result. A register operand must have the class of `scalar`.
    pub(super) fn destination(&mut self, operand: &Operand, scalar: ScalarType) -> Result<Slot> {
        let wanted = Class::of(scalar);
        match (self.any_destination(operand)?, operand) {
            (Some(register), Operand::Name(name)) => self.expect(register, wanted, name),
            _ => self.scratch(wanted),
        }
    }

    /// Returns the register of a destination operand, whatever its class; `None` for `_`.
    pub(super) fn any_destination(&mut self, operand: &Operand) -> Result<Option<Register>> {
        match operand {
            Operand::Sink => Ok(None),
            Operand::Name(name) => {
                let register = self.register(name)?.map(Some);
                register.ok_or_else(|| self.refuse(format!("`{name}` is not a register")))
            }
            _ => Err(self.refuse("a destination must be a register")),
        }
    }

    fn expect(&self, register: Register, wanted: Class, name: &str) -> Result<Slot> {
        if register.class == wanted {
            return Ok(register.slot);
        }
        let (has, wants) = (register.class.bits(), wanted.bits());
        Err(self.refuse(format!(
            "register `{name}` has {has} bits, but the operand takes {wants}"
        )))
    }

    /// Returns the register of a predicate operand, and whether it is negated.
    pub(super) fn predicate(&mut self, operand: &Operand) -> Result<Guard> {
        let (slot, invert) = match operand {
            Operand::Name(name) => (self.predicate_register(name)?, 0),
            Operand::Not(name) => (self.predicate_register(name)?, u32::MAX),
            Operand::Immediate(number) => {
                let truth = number_bits(*number, ScalarType::U64) != 0;
                (self.constant(u64::from(truth), Class::Predicate)?, 0)
            }
            _ => return Err(self.refuse("an operand must be a predicate")),
        };
        Ok(Guard { slot, invert })
    }

    /// Returns a register with the value of a predicate operand; a negated one is negated by an
    /// operation of its own.
    pub(super) fn plain_predicate(&mut self, operand: &Operand) -> Result<Slot> {
        let guard = self.predicate(operand)?;
        if guard.invert == 0 {
            return Ok(guard.slot);
        }
        let slot = self.scratch(Class::Predicate)?;
        self.compute(predicate::not, slot, &[guard.slot])?;
        Ok(slot)
    }

    /// Returns the predicate register `name`.
    pub(super) fn predicate_register(&mut self, name: &str) -> Result<Slot> {
        match self.register(name)? {
            Some(register) => self.expect(register, Class::Predicate, name),
            None => Err(self.refuse(format!("`{name}` is not a predicate register"))),
        }
    }

    /// What a name that is no register stands for: a special register, or an address.
    fn named_value(&mut self, name: &str, offset: i64, wanted: Class) -> Result<Slot> {
        if offset == 0
            && let Some(slot) = special::read(self, name, wanted)?
        {
            return Ok(slot);
        }
        match self.variable_home(name)? {
            Some(home) => self.address_value(home, offset, wanted),
            None => match self.program.function_address(self.number, name) {
                Some(address) if offset == 0 => self.constant(address, wanted),
                _ => Err(self.refuse(format!("`{name}` is not declared"))),
            },
        }
    }

    /// Returns a register with the address of a variable plus `offset`. It is an address within the
    /// state space of the variable; for `.global` and `.const`, a generic address.
    pub(super) fn address_value(&mut self, home: Home, offset: i64, wanted: Class) -> Result<Slot> {
        match home {
            Home::Shared(at) | Home::Parameter(at, _) => {
                let value = i64::from(at).wrapping_add(offset);
                self.constant(value.cast_unsigned(), wanted)
            }
            Home::DynamicShared => {
                let constants = &mut self.program.constants;
                constants.dynamic_shared(offset, wanted, self.line)
            }
            Home::Generic(at) => self.constant(at.wrapping_add_signed(offset), wanted),
            Home::Local(at, _) => self.local_address(i64::from(at).wrapping_add(offset), wanted),
        }
    }

    /// Local memory moves with the frame: an address in it is known when the function runs.
    fn local_address(&mut self, offset: i64, wanted: Class) -> Result<Slot> {
        let base = self.scratch(Class::Word)?;
        self.compute_with(registers::word, base, &[], Special::LocalBase as u64)?;
        let isa = self.program.isa;
        let by = self.constant(offset.cast_unsigned(), Class::Word)?;
        let sum = self.scratch(wanted)?;
        let add = match wanted {
            Class::Double => binary(isa, |a: u32, b: u32| u64::from(a.wrapping_add(b))),
            _ => binary(isa, |a: u32, b: u32| a.wrapping_add(b)),
        };
        self.compute(add, sum, &[base, by])?;
        Ok(sum)
    }

    /// Lowers an instruction with a destination and `N - 1` sources, all of the types given, to one
    /// operation. Refuses the instruction if `execute` is `None`.
    pub(super) fn simple<const N: usize>(
        &mut self,
        form: &Form<'_>,
        types: [ScalarType; N],
        execute: impl Into<Option<Exec>>,
        imm: u64,
    ) -> Result {
        let execute = execute.into().ok_or_else(|| form.unsupported())?;
        let operands = form.operands::<N>()?;
        let mut sources = [Default::default(); 3];
        for index in 1..N {
            sources[index - 1] = self.source(&operands[index], types[index])?;
        }
        let dst = self.destination(&operands[0], types[0])?;
        let [a, b, c] = sources;
        let meaning = Meaning::of(&form.mnemonic());
        self.compute_as(meaning, (execute, imm), dst, &[a, b, c])
    }

    /// Lowers an instruction to several operations: `before` on every source, then `execute` with
    /// an immediate, then each of `after`, which is not empty, on the result.
    pub(super) fn stepwise<const N: usize>(
        &mut self,
        form: &Form<'_>,
        scalar: ScalarType,
        (execute, imm): (Exec, u64),
        before: Option<Exec>,
        after: &[Exec],
    ) -> Result {
        let operands = form.operands::<N>()?;
        let mut sources = [Slot::default(); 3];
        for (source, operand) in sources.iter_mut().zip(&operands[1..]) {
            *source = self.source(operand, scalar)?;
            if let Some(before) = before {
                let prepared = self.scratch(Class::of(scalar))?;
                self.compute(before, prepared, &[*source])?;
                *source = prepared;
            }
        }
        let raw = self.scratch(Class::of(scalar))?;
        self.compute_with(execute, raw, &sources, imm)?;
        let (last, others) = after.split_last().ok_or_else(|| form.unsupported())?;
        for step in others {
            self.compute(*step, raw, &[raw])?;
        }
        let dst = self.destination(&operands[0], scalar)?;
        self.compute(*last, dst, &[raw])
    }
}
