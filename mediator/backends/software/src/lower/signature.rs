//! Where a device function expects its arguments, and where it leaves its results.

use super::frame::{Class, Frame};
use super::refusal::Result;
use super::scope::{Home, Scopes};
use super::variables::variable_bytes;
use crate::program::Place;
use crate::ptx::ast::{Function, Parameter, ScalarType};

/// Where and what one argument or result of a function is.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Place in the frame of the callee.
    pub(super) place: Place,
    /// Size in each lane, in bytes.
    pub(super) bytes: u32,
    /// Type; of an array, that of its elements.
    pub(super) scalar: ScalarType,
}

/// Arguments and results of a function, in order.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    pub(super) results: Vec<Item>,
    pub(super) arguments: Vec<Item>,
}

impl Signature {
    /// Returns the signature of a function. The frame of the function begins with these items: see
    /// [`declare`].
    pub(super) fn new(function: &Function) -> Result<Self> {
        declare(function, &mut Frame::new(), &mut Scopes::default())
    }
}

/// Puts results and arguments, in this order, at the beginning of a frame, and names them.
pub(super) fn declare(
    function: &Function,
    frame: &mut Frame,
    scopes: &mut Scopes,
) -> Result<Signature> {
    let mut items = |parameters: &[Parameter]| -> Result<Vec<Item>> {
        let parameters = parameters.iter();
        parameters.map(|p| item(p, frame, scopes)).collect()
    };
    Ok(Signature {
        results: items(&function.results)?,
        arguments: items(&function.parameters)?,
    })
}

fn item(parameter: &Parameter, frame: &mut Frame, scopes: &mut Scopes) -> Result<Item> {
    match parameter {
        Parameter::Variable(variable) => {
            let bytes = variable_bytes(variable)?;
            let align = variable.align.max(variable.scalar.bytes());
            let offset = frame.local_memory(bytes, align, variable.line)?;
            // Local memory of a frame is limited, so it fits.
            let bytes = u32::try_from(bytes).unwrap_or(0);
            scopes.declare_variable(&variable.name, Home::Local(offset, bytes));
            Ok(Item {
                place: Place::Local(offset),
                bytes,
                scalar: variable.scalar,
            })
        }
        Parameter::Register(registers) => {
            let class = Class::of(registers.scalar);
            let slot = frame.register(class, registers.line)?;
            scopes.declare_register_at(registers, slot);
            Ok(Item {
                place: match class {
                    Class::Predicate => Place::Predicate(slot),
                    _ => Place::Register(slot),
                },
                bytes: registers.scalar.bytes(),
                scalar: registers.scalar,
            })
        }
    }
}
