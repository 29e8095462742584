//! Variables at module scope: where they are, and what they hold when the module is loaded.

use std::collections::HashMap;

use super::frame::place;
use super::names::{Names, Symbol};
use super::refusal::{Refusal, Result, within_input};
use crate::address;
use crate::ptx::ast::{Immediate, Initial, Linkage, Module, ScalarType, StateSpace, Variable};

/// Bytes of all `.global` (or all `.const`) variables of a module, at most.
const SEGMENT_BYTES_MAX: u32 = 256 << 20;

/// Where a variable at module scope is.
#[derive(Clone, Copy, Debug)]
pub(super) enum ModuleVariable<'a> {
    /// `.global` and `.const`: a generic address.
    Address(u64),
    /// `.shared`: placed by each kernel that uses it; with its number among all variables.
    Shared(usize, &'a Variable),
    /// Declared, but defined nowhere.
    Missing,
}

/// The variables of a module, or of several that are linked, and their addresses.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    names: Names<'a>,
    /// Definitions and declarations. Those that do not count have no address.
    all: Vec<Placed<'a>>,
    /// Addresses of all `.global` variables.
    pub(crate) global: Segment,
    /// Addresses of all `.const` variables.
    pub(crate) constant: Segment,
}

/// A variable of a module.
#[derive(Debug)]
struct Placed<'a> {
    variable: &'a Variable,
    /// Number of the module.
    input: usize,
    /// Generic address of a variable in global or constant memory.
    at: Option<u64>,
}

/// A range of addresses for variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// First generic address of the range.
    pub(crate) start: u64,
    /// Size of the range in bytes.
    pub(crate) bytes: u32,
}

impl Segment {
    /// Returns the size of the segment in whole pages, in bytes.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        u64::from(self.bytes).next_multiple_of(causeway_memory::PAGE_BYTES)
    }
}

impl<'a> Variables<'a> {
    /// Returns the bytes that the variables in global and constant memory take.
    pub(crate) fn bytes(&self) -> u64 {
        self.global.mapped_bytes() + self.constant.mapped_bytes()
    }

    /// Places the variables of modules, which are linked, behind `offset`, in the ranges for them.
    pub(crate) fn new(modules: &'a [Module], offset: u64) -> Result<Self> {
        let mut variables = Self {
            names: Names::new(modules.len()),
            all: Vec::new(),
            global: Segment {
                start: address::GLOBAL_VARIABLES.start + offset,
                bytes: 0,
            },
            constant: Segment {
                start: address::CONST_VARIABLES.start + offset,
                bytes: 0,
            },
        };
        for (input, module) in modules.iter().enumerate() {
            for variable in &module.variables {
                let named = variables.name(input, variable);
                named.map_err(|refusal| within_input(input, modules.len(), refusal))?;
            }
        }
        for index in 0..variables.all.len() {
            let input = variables.all[index].input;
            let placed = variables.place(index);
            placed.map_err(|refusal| within_input(input, modules.len(), refusal))?;
        }
        Ok(variables)
    }

    fn name(&mut self, input: usize, variable: &'a Variable) -> Result {
        let symbol = Symbol {
            input,
            line: variable.line,
            name: &variable.name,
            linkage: variable.linkage,
            defined: variable.linkage != Linkage::Extern,
            bytes: variable_bytes(variable)?,
        };
        self.names.add(symbol, self.all.len())?;
        self.all.push(Placed {
            variable,
            input,
            at: None,
        });
        Ok(())
    }

    /// Gives variable number `index` its address, if it is a definition that counts.
    fn place(&mut self, index: usize) -> Result {
        let Placed {
            variable, input, ..
        } = self.all[index];
        let counts = self.names.get(input, &variable.name) == Some(index);
        if variable.linkage == Linkage::Extern || !counts {
            return Ok(());
        }
        let segment = match variable.space {
            StateSpace::Shared => return Ok(()),
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
        self.all[index].at = Some(segment.start + u64::from(offset));
        Ok(())
    }

    /// Returns the variable that `name` stands for in module `input`; `None` if the module has no
    /// such variable.
    pub(super) fn get(&self, input: usize, name: &str) -> Option<ModuleVariable<'a>> {
        let number = self.names.get(input, name)?;
        let Placed { variable, at, .. } = self.all[number];
        Some(match at {
            Some(at) => ModuleVariable::Address(at),
            None if variable.space == StateSpace::Shared => {
                ModuleVariable::Shared(number, variable)
            }
            None => ModuleVariable::Missing,
        })
    }

    /// Variables in global and constant memory, with their addresses.
    fn with_address(&self) -> impl DoubleEndedIterator<Item = (&Placed<'a>, u64)> {
        self.all
            .iter()
            .filter_map(|placed| Some((placed, placed.at?)))
    }

    /// Returns address and size of each variable in global or constant memory, by name. Of several
    /// with one name, the one that other modules know counts, else the first.
    pub(crate) fn placed(&self) -> HashMap<String, (u64, u64)> {
        let is_static = |p: &Placed<'_>| p.variable.linkage == Linkage::Static;
        let own = self.with_address().rev().filter(|(p, _)| is_static(p));
        let linked = self.with_address().filter(|(p, _)| !is_static(p));
        let placed = own.chain(linked).map(|(Placed { variable, .. }, at)| {
            // Placed variables have a size that fits.
            let bytes = variable_bytes(variable).unwrap_or(0);
            (variable.name.clone(), (at, bytes))
        });
        placed.collect()
    }

    /// Calls `write(address, bytes)` for every initial value.
    pub(crate) fn initialize(&self, mut write: impl FnMut(u64, &[u8])) -> Result {
        for (placed, start) in self.with_address() {
            let variable = placed.variable;
            let element = variable.scalar.bytes() as usize;
            let room = variable_bytes(variable)? as usize / element;
            for (index, initial) in variable.initial.iter().take(room).enumerate() {
                let value = self.initial_value(initial, placed)?.to_le_bytes();
                write(start + (index * element) as u64, &value[..element]);
            }
        }
        Ok(())
    }

    fn initial_value(&self, initial: &Initial, placed: &Placed<'_>) -> Result<u128> {
        let variable = placed.variable;
        match initial {
            Initial::Number(number) => Ok(number_bits(*number, variable.scalar)),
            Initial::Address { name, offset, .. } => match self.get(placed.input, name) {
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
