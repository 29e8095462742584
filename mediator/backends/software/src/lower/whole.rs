//! Vectors that are loaded or stored at once. The memory model of PTX takes a vector for several
//! accesses, but devices do those of 8 and 16 bytes at once, and programs rely on it where they say
//! how an access is ordered.

use super::addresses::{Address, MemoryAddress};
use super::frame::{Class, quad_half};
use super::lowering::Lowering;
use super::refusal::Result;
use crate::exec::{binary, unary, wide};
use crate::program::Op;
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;
use ScalarType as T;

/// Modifiers of accesses that others may look at meanwhile.
const STRONG: [&str; 5] = ["volatile", "relaxed", "acquire", "release", "mmio"];

/// Whether an access with these modifiers is done at once, if it has `count` values of this type.
pub(super) fn is_whole(modifiers: &[String], count: usize, scalar: ScalarType) -> bool {
    let is_strong = modifiers.iter().any(|m| STRONG.contains(&m.as_str()));
    is_strong && matches!((count, scalar.bytes()), (2 | 4, 4) | (2, 8) | (1, 16))
}

impl Lowering<'_, '_> {
    /// Loads all values at once. Returns false, and adds nothing, if a register is wider than its
    /// value, or the address is that of a parameter.
    pub(super) fn load_whole(
        &mut self,
        address: Address,
        scalar: ScalarType,
        destinations: &[Operand],
    ) -> Result<bool> {
        let Address::Memory(memory) = address else {
            return Ok(false);
        };
        let mut targets = Vec::with_capacity(destinations.len());
        for destination in destinations {
            match self.any_destination(destination)? {
                Some(register) if register.class != Class::of(scalar) => return Ok(false),
                Some(register) => targets.push(register.slot),
                None => targets.push(self.scratch(Class::of(scalar))?),
            }
        }
        match targets.as_slice() {
            [whole] => self.load_16(memory, [0, 1].map(|half| quad_half(*whole, half)))?,
            [low, high] if scalar.bytes() == 8 => self.load_16(memory, [*low, *high])?,
            &[low, high] => {
                let both = self.scratch(Class::Double)?;
                self.load_element(address, (T::B64, Class::Double), both, 8)?;
                self.part(both, [low, high])?;
            }
            &[a, b, c, d] => {
                let halves = [self.scratch(Class::Double)?, self.scratch(Class::Double)?];
                self.load_16(memory, halves)?;
                self.part(halves[0], [a, b])?;
                self.part(halves[1], [c, d])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Stores all values at once. Returns false, and adds nothing, if the address is that of a
    /// parameter.
    pub(super) fn store_whole(
        &mut self,
        address: Address,
        scalar: ScalarType,
        operands: &[Operand],
    ) -> Result<bool> {
        let Address::Memory(memory) = address else {
            return Ok(false);
        };
        let mut values = Vec::with_capacity(operands.len());
        for operand in operands {
            values.push(match scalar {
                T::B128 => self.source(operand, scalar)?,
                _ => self.source_relaxed(operand, scalar)?,
            });
        }
        match values.as_slice() {
            [whole] => self.store_16(memory, [0, 1].map(|half| quad_half(*whole, half)))?,
            [low, high] if scalar.bytes() == 8 => self.store_16(memory, [*low, *high])?,
            &[low, high] => {
                let both = self.join([low, high])?;
                self.store_element(address, (T::B64, Class::Double), both, 8)?;
            }
            &[a, b, c, d] => {
                let halves = [self.join([a, b])?, self.join([c, d])?];
                self.store_16(memory, halves)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn load_16(&mut self, memory: MemoryAddress, [low, high]: [Slot; 2]) -> Result {
        self.push(Op {
            dst: low,
            dst2: high,
            ..self.access(memory, 16, wide::load())
        })
    }

    fn store_16(&mut self, memory: MemoryAddress, [low, high]: [Slot; 2]) -> Result {
        self.push(Op {
            b: low,
            dst2: high,
            ..self.access(memory, 16, wide::store())
        })
    }

    /// Takes the two words of 64 bits apart.
    fn part(&mut self, both: Slot, [low, high]: [Slot; 2]) -> Result {
        let isa = self.program.isa;
        self.compute(unary(isa, |both: u64| both as u32), low, &[both])?;
        self.compute(unary(isa, |both: u64| (both >> 32) as u32), high, &[both])
    }

    /// Puts two words together.
    fn join(&mut self, words: [Slot; 2]) -> Result<Slot> {
        let both = self.scratch(Class::Double)?;
        let execute = binary(self.program.isa, |low: u32, high: u32| {
            u64::from(low) | u64::from(high) << 32
        });
        self.compute(execute, both, &words)?;
        Ok(both)
    }
}
