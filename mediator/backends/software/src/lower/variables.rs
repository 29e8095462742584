//! Variables at module scope: where they are, and what they hold when the module is loaded.

use std::collections::HashMap;

use super::frame::place;
use super::refusal::{Refusal, Result};
use crate::address;
use crate::ptx::ast::{Immediate, Initial, Module, ScalarType, StateSpace, Variable};

/// Bytes of all `.global` (or all `.const`) variables of a module, at most.
const SEGMENT_BYTES_MAX: u32 = 256 << 20;

/// Where a variable at module scope is.
#[derive(Clone, Copy, Debug)]
pub(super) enum ModuleVariable<'a> {
    /// `.global` and `.const`: a generic address.
    Address(u64),
    /// `.shared`: placed by each kernel that uses it.
    Shared(&'a Variable),
    /// Declared, but defined nowhere.
    Missing,
}

/// The variables of a module and their addresses.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    names: HashMap<&'a str, ModuleVariable<'a>>,
    /// Variables in global and constant memory, with their addresses.
    placed: Vec<(&'a Variable, u64)>,
    /// Addresses of all `.global` variables.
    pub(crate) global: Segment,
    /// Addresses of all `.const` variables.
    pub(crate) constant: Segment,
}

/// A range of addresses for variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// First generic address of the range.
    pub(crate) start: u64,
    /// Size of the range in bytes.
    pub(crate) bytes: u32,
}

impl<'a> Variables<'a> {
    /// Places the variables of a module behind `offset`, in the ranges for them.
    pub(crate) fn new(module: &'a Module, offset: u64) -> Result<Self> {
        let mut variables = Self {
            names: HashMap::new(),
            placed: Vec::new(),
            global: Segment {
                start: address::GLOBAL_VARIABLES.start + offset,
                bytes: 0,
            },
            constant: Segment {
                start: address::CONST_VARIABLES.start + offset,
                bytes: 0,
            },
        };
        for variable in &module.variables {
            variables.add(variable)?;
        }
        Ok(variables)
    }

    fn add(&mut self, variable: &'a Variable) -> Result {
        let name = variable.name.as_str();
        let segment = match variable.space {
            StateSpace::Shared => {
                self.names.insert(name, ModuleVariable::Shared(variable));
                return Ok(());
            }
            _ if variable.external => {
                self.names.entry(name).or_insert(ModuleVariable::Missing);
                return Ok(());
            }
            StateSpace::Const => &mut self.constant,
            _ => &mut self.global,
        };
        let bytes = variable_bytes(variable)?;
        let offset = place(&mut segment.bytes, bytes, variable.align, SEGMENT_BYTES_MAX)
            .ok_or_else(|| {
                let reason =
                    format!("variables of the module exceed {SEGMENT_BYTES_MAX} bytes in all");
                Refusal::new(variable.line, reason)
            })?;
        let at = segment.start + u64::from(offset);
        self.placed.push((variable, at));
        self.names.insert(name, ModuleVariable::Address(at));
        Ok(())
    }

    /// Returns the variable `name` of the module; `None` if the module has no such variable.
    pub(super) fn get(&self, name: &str) -> Option<ModuleVariable<'a>> {
        self.names.get(name).copied()
    }

    /// Returns address and size of each variable in global or constant memory, by name.
    pub(crate) fn placed(&self) -> HashMap<String, (u64, u64)> {
        let placed = self.placed.iter().map(|(variable, at)| {
            // Placed variables have a size that fits.
            let bytes = variable_bytes(variable).unwrap_or(0);
            (variable.name.clone(), (*at, bytes))
        });
        placed.collect()
    }

    /// Calls `write(address, bytes)` for every initial value.
    pub(crate) fn initialize(&self, mut write: impl FnMut(u64, &[u8])) -> Result {
        for (variable, start) in &self.placed {
            let element = variable.scalar.bytes() as usize;
            let room = variable_bytes(variable)? as usize / element;
            for (index, initial) in variable.initial.iter().take(room).enumerate() {
                let value = self.initial_value(initial, variable)?.to_le_bytes();
                write(start + (index * element) as u64, &value[..element]);
            }
        }
        Ok(())
    }

    fn initial_value(&self, initial: &Initial, variable: &Variable) -> Result<u128> {
        match initial {
            Initial::Number(number) => Ok(number_bits(*number, variable.scalar)),
            Initial::Address { name, offset, .. } => match self.get(name) {
                Some(ModuleVariable::Address(at)) => {
                    Ok(u128::from(at.wrapping_add_signed(*offset)))
                }
                _ => {
                    let reason = format!(
                        "the initial value of `{}` is the address of `{name}`, which is not a \
                         variable in global or constant memory",
                        variable.name
                    );
                    Err(Refusal::new(variable.line, reason))
                }
            },
        }
    }
}

/// Returns the bits of a number as a value of a type.
pub(super) fn number_bits(number: Immediate, scalar: ScalarType) -> u128 {
    let is_double = scalar == ScalarType::F64 || scalar == ScalarType::B64;
    match number {
        Immediate::Integer(value) => value.cast_unsigned(),
        Immediate::F32(bits) if scalar == ScalarType::F64 => {
            u128::from(f64::from(f32::from_bits(bits)).to_bits())
        }
        Immediate::F32(bits) => {
            short_float(f32::from_bits(bits).into(), scalar).unwrap_or(u128::from(bits))
        }
        Immediate::F64(bits) if is_double => u128::from(bits),
        Immediate::F64(bits) => {
            let value = f64::from_bits(bits);
            short_float(value, scalar).unwrap_or(u128::from((value as f32).to_bits()))
        }
    }
}

/// A 16-bit float of a literal, for the types that are one.
fn short_float(value: f64, scalar: ScalarType) -> Option<u128> {
    match scalar {
        ScalarType::F16 => Some(half::f16::from_f64(value).to_bits().into()),
        ScalarType::BF16 => Some(half::bf16::from_f64(value).to_bits().into()),
        _ => None,
    }
}

/// Returns the bytes that a variable takes.
pub(super) fn variable_bytes(variable: &Variable) -> Result<u64> {
    let element = u64::from(variable.scalar.bytes()) * u64::from(variable.vector.max(1));
    variable.elements.checked_mul(element).ok_or_else(|| {
        let reason = format!("variable `{}` is larger than memory can be", variable.name);
        Refusal::new(variable.line, reason)
    })
}
