//! The parameter block of a kernel.

use causeway_protocol::message::{PARAMETERS_MAX, Parameter};

use super::frame::place;
use super::refusal::{Refusal, Result};
use super::scope::Home;
use super::variables::variable_bytes;
use crate::ptx::ast;

/// Bytes of the parameter block, at most.
const PARAMETER_BYTES_MAX: u32 = 32764;

/// Where the parameters of a kernel are in its parameter block.
#[derive(Debug)]
pub(super) struct ParameterLayout {
    /// Offset and size of each parameter.
    pub(super) parameters: Vec<Parameter>,
    /// Name of each parameter, and where the kernel finds it.
    pub(super) homes: Vec<(String, Home)>,
    /// Size of the parameter block in bytes.
    pub(super) bytes: u32,
}

impl ParameterLayout {
    /// Returns the layout of the parameters of `entry`.
    pub(super) fn new(entry: &ast::Function) -> Result<Self> {
        let mut layout = Self {
            parameters: Vec::new(),
            homes: Vec::new(),
            bytes: 0,
        };
        for parameter in &entry.parameters {
            match parameter {
                ast::Parameter::Variable(variable) => layout.add(variable)?,
                ast::Parameter::Register(registers) => {
                    let reason = "a kernel cannot have parameters in registers";
                    return Err(Refusal::new(registers.line, reason));
                }
            }
        }
        if layout.parameters.len() > PARAMETERS_MAX {
            let reason = format!(
                "the kernel has {} parameters, but at most {PARAMETERS_MAX} are supported",
                layout.parameters.len()
            );
            return Err(Refusal::new(entry.line, reason));
        }
        Ok(layout)
    }

    fn add(&mut self, variable: &ast::Variable) -> Result {
        let too_large = || {
            let reason = format!("kernel parameters exceed {PARAMETER_BYTES_MAX} bytes");
            Refusal::new(variable.line, reason)
        };
        let size = variable_bytes(variable)?;
        let align = variable.align.max(variable.scalar.bytes());
        let offset = place(&mut self.bytes, size, align, PARAMETER_BYTES_MAX);
        let offset = offset.ok_or_else(too_large)?;
        let size = u16::try_from(size).map_err(|_| too_large())?;
        self.parameters.push(Parameter {
            offset: u16::try_from(offset).map_err(|_| too_large())?,
            size,
        });
        let home = Home::Parameter(offset, u32::from(size));
        self.homes.push((variable.name.clone(), home));
        Ok(())
    }
}
