//! The form of an instruction: its modifiers, taken one by one until none is left.

use super::refusal::{Refusal, Result};
use crate::arith::Rounding;
use crate::ptx::ast::{Instruction, Operand, ScalarType};

/// An instruction whose modifiers are being understood. What remains at the end is refused.
pub(super) struct Form<'a> {
    /// The instruction.
    pub(super) instruction: &'a Instruction,
    left: Vec<&'a str>,
}

impl<'a> Form<'a> {
    /// Creates the form of an instruction, with all modifiers left.
    pub(super) fn new(instruction: &'a Instruction) -> Self {
        Self {
            instruction,
            left: instruction.modifiers.iter().map(String::as_str).collect(),
        }
    }

    /// Takes a modifier, if it is there.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.one_of(&[name]).is_some()
    }

    /// Takes the first of the modifiers that is one of `names`.
    pub(super) fn one_of(&mut self, names: &[&str]) -> Option<&'a str> {
        let index = self.left.iter().position(|m| names.contains(m))?;
        Some(self.left.remove(index))
    }

    /// Takes all modifiers for which `is` holds.
    pub(super) fn discard(&mut self, is: impl Fn(&str) -> bool) {
        self.left.retain(|m| !is(m));
    }

    /// Takes the next modifier that is a type.
    pub(super) fn scalar(&mut self) -> Result<ScalarType> {
        self.scalar_if_any().ok_or_else(|| self.without_type())
    }

    /// Returns the refusal of an instruction of which no modifier is a known type. One that is left
    /// may be a type of PTX, such as `.e2m1x2`; the refusal names it.
    pub(super) fn without_type(&self) -> Refusal {
        match self.done() {
            Err(refusal) => refusal,
            Ok(()) => self.refuse("has no type"),
        }
    }

    /// Takes the next modifier that is a type; refuses types that are not one of `supported`.
    pub(super) fn scalar_of(&mut self, supported: &[ScalarType]) -> Result<ScalarType> {
        let scalar = self.scalar()?;
        if supported.contains(&scalar) {
            Ok(scalar)
        } else {
            Err(self.unsupported())
        }
    }

    /// Takes the next modifier that is a type, if there is one.
    pub(super) fn scalar_if_any(&mut self) -> Option<ScalarType> {
        self.find(ScalarType::from_modifier)
    }

    /// Takes the first modifier that `read` knows, and returns what it means.
    pub(super) fn find<R>(&mut self, read: impl Fn(&str) -> Option<R>) -> Option<R> {
        let mut left = self.left.iter().enumerate();
        let (index, meaning) = left.find_map(|(index, m)| Some((index, read(m)?)))?;
        self.left.remove(index);
        Some(meaning)
    }

    /// Takes a rounding modifier, if there is one.
    pub(super) fn rounding(&mut self) -> Option<Rounding> {
        self.find(Rounding::from_modifier)
    }

    /// Returns the operands. Refuses another number of operands than `N`, and modifiers that are
    /// left.
    pub(super) fn operands<const N: usize>(&self) -> Result<&'a [Operand; N]> {
        self.done()?;
        let operands = &self.instruction.operands;
        operands
            .as_slice()
            .try_into()
            .map_err(|_| self.refuse(format!("takes {N} operands, but has {}", operands.len())))
    }

    /// Refuses modifiers that are left.
    pub(super) fn done(&self) -> Result {
        match self.left.first() {
            None => Ok(()),
            Some(modifier) => Err(self.refuse(format!(
                "is not supported by the software back end with modifier `.{modifier}`"
            ))),
        }
    }

    /// Returns the mnemonic as it is in the source.
    pub(super) fn mnemonic(&self) -> String {
        let mut text = self.instruction.opcode.clone();
        for modifier in &self.instruction.modifiers {
            text.push('.');
            text.push_str(modifier);
        }
        text
    }

    /// Returns a refusal of this instruction, whose text is "instruction `x`" and then `reason`.
    pub(super) fn refuse(&self, reason: impl AsRef<str>) -> Refusal {
        let text = format!("instruction `{}` {}", self.mnemonic(), reason.as_ref());
        Refusal::new(self.instruction.line, text)
    }

    /// Returns the refusal of a form that PTX may have, but this back end does not support.
    pub(super) fn unsupported(&self) -> Refusal {
        self.refuse("is not supported by the software back end")
    }
}
