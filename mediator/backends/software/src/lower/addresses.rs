//! Address operands, and the accesses to one element that they make possible.

use super::element::{load_function, parameter_function, store_function};
use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use super::scope::Home;
use crate::exec::access::{address_kind, space};
use crate::program::{Action, Exec, Op};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;

/// Where an address operand points to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Address {
    /// A kernel parameter at a constant offset.
    Parameter(u32),
    /// Memory.
    Memory(MemoryAddress),
}

/// An address in a register, plus an offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryAddress {
    /// State space, as [`space`] numbers them.
    pub(super) space: u8,
    /// Register that holds the address.
    pub(super) slot: Slot,
    /// Whether the register has 32 bits, not 64.
    pub(super) word: bool,
    /// Offset in bytes, which is added to the register.
    pub(super) offset: i64,
}

/// Takes the modifier that names a state space, and returns its number; [`space::GENERIC`] if there
/// is none.
pub(super) fn space_of(form: &mut Form<'_>) -> u8 {
    let named = form.one_of(&[
        "global",
        "const",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "param",
        "param::entry",
        "param::func",
    ]);
    match named {
        None => space::GENERIC,
        Some("global" | "const") => space::GLOBAL,
        Some("local") => space::LOCAL,
        Some(name) if name.starts_with("param") => space::PARAMETER,
        Some(_) => space::SHARED,
    }
}

/// Returns whether a modifier says how memory is ordered or cached. Every access here is as ordered
/// as x86 makes it, which is enough for all but the fences, and caches are coherent.
pub(super) fn is_hint(modifier: &str) -> bool {
    const HINTS: [&str; 25] = [
        "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "nc", "ca", "cg",
        "cs", "lu", "cv", "wb", "wt", "cta", "cluster", "gpu", "sys", "mmio", "unified", "noftz",
        "async", "proxy", "alias",
    ];
    HINTS.contains(&modifier)
        || ["L1::", "L2::", "level::"]
            .iter()
            .any(|prefix| modifier.starts_with(prefix))
}

impl Lowering<'_, '_> {
    /// Resolves `[base + offset]`.
    pub(super) fn address(&mut self, operand: &Operand, named: u8) -> Result<Address> {
        let (base, offset) = match operand {
            Operand::Memory { base, offset } => (base.as_deref(), *offset),
            _ => return Err(self.refuse("an address must be in brackets")),
        };
        let Some(name) = base else {
            let slot = self.constant(offset.cast_unsigned(), Class::Double)?;
            return Ok(Address::Memory(MemoryAddress {
                space: named,
                slot,
                word: false,
                offset: 0,
            }));
        };
        if let Some(register) = self.register(name)? {
            return self.register_address(register, name, offset, named);
        }
        match self.variable_home(name)? {
            Some(home) => self.variable_address(home, offset, named),
            None => Err(self.refuse(format!("`{name}` is not declared"))),
        }
    }

    fn register_address(
        &mut self,
        register: super::scope::Register,
        name: &str,
        offset: i64,
        named: u8,
    ) -> Result<Address> {
        let word = register.class == Class::Word;
        if !word && register.class != Class::Double {
            return Err(self.refuse(format!("register `{name}` cannot hold an address")));
        }
        // Parameters of a device function, and those for its callees, are in local memory.
        let space = if named == space::PARAMETER && !self.is_kernel {
            space::LOCAL
        } else {
            named
        };
        Ok(Address::Memory(MemoryAddress {
            space,
            slot: register.slot,
            word,
            offset,
        }))
    }

    fn variable_address(&mut self, home: Home, offset: i64, named: u8) -> Result<Address> {
        let own = match home {
            Home::Shared(_) | Home::DynamicShared => space::SHARED,
            Home::Local(..) => space::LOCAL,
            Home::Parameter(..) => space::PARAMETER,
            Home::Generic(_) => space::GLOBAL,
        };
        let matches = match named {
            space::GENERIC => true,
            space::PARAMETER => matches!(home, Home::Local(..) | Home::Parameter(..)),
            other => other == own,
        };
        if !matches {
            return Err(self.refuse("the variable is in another state space"));
        }
        if let Home::Parameter(at, _) = home {
            let at = i64::from(at).checked_add(offset);
            let at = at.and_then(|at| u32::try_from(at).ok());
            let outside = || self.refuse("the offset is outside the parameters");
            return at.map(Address::Parameter).ok_or_else(outside);
        }
        let slot = self.address_value(home, 0, Class::Double)?;
        Ok(Address::Memory(MemoryAddress {
            space: own,
            slot,
            word: false,
            offset,
        }))
    }

    /// Adds the load of one element.
    pub(super) fn load_element(
        &mut self,
        address: Address,
        (scalar, class): (ScalarType, Class),
        dst: Slot,
        align_bytes: u32,
    ) -> Result {
        let isa = self.program.isa;
        match address {
            Address::Parameter(at) => {
                let bytes = self.program.layout.bytes;
                if at.saturating_add(scalar.bytes()) > bytes {
                    return Err(self.refuse(format!(
                        "loads beyond the end of the parameters, which have {bytes} bytes"
                    )));
                }
                self.compute_with(parameter_function(scalar, class), dst, &[], u64::from(at))
            }
            Address::Memory(memory) => {
                let execute = load_function(isa, scalar, class);
                self.push(Op {
                    dst,
                    ..self.access(memory, align_bytes, execute)
                })
            }
        }
    }

    /// Adds the store of one element.
    pub(super) fn store_element(
        &mut self,
        address: Address,
        (scalar, class): (ScalarType, Class),
        source: Slot,
        align_bytes: u32,
    ) -> Result {
        let Address::Memory(memory) = address else {
            return Err(self.refuse("parameters of a kernel cannot be written"));
        };
        let execute = store_function(self.program.isa, scalar, class);
        self.push(Op {
            b: source,
            ..self.access(memory, align_bytes, execute)
        })
    }

    /// Returns an operation that accesses memory, without the registers of its values.
    pub(super) fn access(&self, memory: MemoryAddress, align_bytes: u32, execute: Exec) -> Op {
        Op {
            a: memory.slot,
            c: address_kind(memory.space, memory.word),
            d: Slot(align_bytes - 1),
            imm: memory.offset.cast_unsigned(),
            ..self.op(Action::Lanes(execute))
        }
    }
}

impl Address {
    /// Returns the address that is `bytes` bytes higher.
    pub(super) fn further(self, bytes: u32) -> Self {
        match self {
            Self::Parameter(at) => Self::Parameter(at.saturating_add(bytes)),
            Self::Memory(memory) => Self::Memory(MemoryAddress {
                offset: memory.offset.wrapping_add(i64::from(bytes)),
                ..memory
            }),
        }
    }
}
