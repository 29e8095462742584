//! Calls of functions that the back end provides, where no module defines them.

use super::frame::Class;
use super::lowering::Lowering as Cx;
use super::refusal::Result;
use super::scope::Home;
use crate::exec::access::space;
use crate::exec::system;
use crate::program::{Action, Exec, Op};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;
use ScalarType as T;

/// A function that the back end provides.
pub(super) struct SystemCall {
    execute: Exec,
    arguments: &'static [ScalarType],
    result: Option<ScalarType>,
}

/// Returns the function `name`; `None` if the back end does not provide it.
pub(super) fn find(name: &str) -> Option<SystemCall> {
    let (execute, arguments, result): (Exec, &[ScalarType], _) = match name {
        "vprintf" => (system::print, &[T::B64, T::B64], Some(T::B32)),
        "__assertfail" => (
            system::fail_assertion,
            &[T::B64, T::B64, T::B32, T::B64, T::B64],
            None,
        ),
        "malloc" => (system::allocate, &[T::B64], Some(T::B64)),
        "free" => (system::free, &[T::B64], None),
        _ => return None,
    };
    Some(SystemCall {
        execute,
        arguments,
        result,
    })
}

impl SystemCall {
    /// Adds the call of this function, which is `name`.
    pub(super) fn lower(
        &self,
        cx: &mut Cx<'_, '_>,
        name: &str,
        results: &[Operand],
        arguments: &[Operand],
    ) -> Result {
        let wanted = (usize::from(self.result.is_some()), self.arguments.len());
        // A result may be left where it is.
        if arguments.len() != wanted.1 || results.len() > wanted.0 {
            return Err(cx.refuse(format!(
                "function `{name}` has {} arguments and {} results, but {} and {} are given",
                wanted.1,
                wanted.0,
                arguments.len(),
                results.len()
            )));
        }
        let mut sources = [Slot::default(); 5];
        for ((source, operand), scalar) in sources.iter_mut().zip(arguments).zip(self.arguments) {
            *source = argument(cx, operand, *scalar)?;
        }
        cx.program.allocates |= name == "malloc";
        cx.program.prints |= name == "vprintf";
        // The last argument of `__assertfail`, the size of a character, means nothing here.
        let [a, b, c, d, _] = sources;
        let class = self.result.map_or(Class::Word, Class::of);
        let dst = cx.scratch(class)?;
        cx.push(Op {
            dst,
            a,
            b,
            c,
            d,
            ..cx.op(Action::System(self.execute))
        })?;
        match (results, self.result) {
            ([operand], Some(scalar)) => result(cx, operand, scalar, dst),
            _ => Ok(()),
        }
    }
}

/// Returns a register with an argument, which is a register, a number or a `.param` variable.
fn argument(cx: &mut Cx<'_, '_>, operand: &Operand, scalar: ScalarType) -> Result<Slot> {
    let Some(memory) = variable(cx, operand, scalar)? else {
        return cx.source(operand, scalar);
    };
    let class = Class::of(scalar);
    let slot = cx.scratch(class)?;
    let address = cx.address(&memory, space::PARAMETER)?;
    cx.load_element(address, (scalar, class), slot, scalar.bytes())?;
    Ok(slot)
}

/// Puts the result in `from` where the caller wants it.
fn result(cx: &mut Cx<'_, '_>, operand: &Operand, scalar: ScalarType, from: Slot) -> Result {
    let class = Class::of(scalar);
    let Some(memory) = variable(cx, operand, scalar)? else {
        let dst = cx.destination(operand, scalar)?;
        let copy = super::element::copy_function(cx.program.isa, class);
        return cx.compute(copy, dst, &[from]);
    };
    let address = cx.address(&memory, space::PARAMETER)?;
    cx.store_element(address, (scalar, class), from, scalar.bytes())
}

/// Returns the memory of an operand that is a `.param` variable; `None` if it is something else.
fn variable(cx: &Cx<'_, '_>, operand: &Operand, scalar: ScalarType) -> Result<Option<Operand>> {
    let Operand::Name(name) = operand else {
        return Ok(None);
    };
    match cx.scopes.variable(name) {
        Some(Home::Local(_, bytes)) if bytes >= scalar.bytes() => Ok(Some(Operand::Memory {
            base: Some(name.clone()),
            offset: 0,
        })),
        Some(Home::Local(_, bytes)) => {
            let wanted = scalar.bytes();
            Err(cx.refuse(format!(
                "`{name}` has {bytes} bytes, but {wanted} are passed"
            )))
        }
        _ => Ok(None),
    }
}
