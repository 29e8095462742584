//! Calls of device functions.

use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering as Cx;
use super::refusal::Result;
use super::scope::Home;
use super::signature::{Item, Signature};
use super::system;
use crate::program::{Action, CallSite, Move, Place};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::{FrameBytes, Slot};

/// Arguments and results of a call, at most.
const VALUES_MAX: usize = 4096;

/// `call`
pub(super) fn call(cx: &mut Cx<'_, '_>, mut form: Form<'_>) -> Result {
    form.flag("uni");
    form.done()?;
    let (results, name, arguments) = parts(&form)?;
    if !cx.program.defines(cx.number, name)
        && let Some(function) = system::find(name)
    {
        return function.lower(cx, name, results, arguments);
    }
    if cx.register(name)?.is_some() {
        return Err(form
            .refuse("calls through a register, which is not supported by the software back end"));
    }
    let (number, signature) = cx.program.callee(cx.number, name, cx.line)?;
    check_counts(cx, name, &signature, results, arguments)?;
    if arguments.len() + results.len() > VALUES_MAX {
        return Err(form.refuse(format!("passes more than {VALUES_MAX} values")));
    }
    cx.program.take(arguments.len() + results.len(), cx.line)?;
    let mut inward = Vec::with_capacity(arguments.len());
    for (operand, item) in arguments.iter().zip(&signature.arguments) {
        let from = place_of(cx, operand, item, Cx::source)?;
        inward.push(Move {
            from,
            to: item.place,
            bytes: item.bytes,
        });
    }
    let mut outward = Vec::with_capacity(results.len());
    for (operand, item) in results.iter().zip(&signature.results) {
        let to = place_of(cx, operand, item, Cx::destination)?;
        outward.push(Move {
            from: item.place,
            to,
            bytes: item.bytes,
        });
    }
    let site = u32::try_from(cx.program.calls.len()).unwrap_or(u32::MAX);
    cx.program.calls.push(CallSite {
        // The number of the function, until the program is linked.
        target: u32::try_from(number).unwrap_or(u32::MAX),
        distance: FrameBytes::default(),
        callee: FrameBytes::default(),
        arguments: inward,
        results: outward,
    });
    cx.emit(Action::Call(site))
}

/// Results, function, arguments.
fn parts<'a>(form: &Form<'a>) -> Result<(&'a [Operand], &'a str, &'a [Operand])> {
    match form.instruction.operands.as_slice() {
        [
            Operand::List(results),
            Operand::Name(name),
            Operand::List(arguments),
            ..,
        ] => Ok((results, name, arguments)),
        [Operand::Name(name), Operand::List(arguments), ..] => Ok((&[], name, arguments)),
        [Operand::List(results), Operand::Name(name)] => Ok((results, name, &[])),
        [Operand::Name(name)] => Ok((&[], name, &[])),
        _ => Err(form.refuse("does not name a function")),
    }
}

fn check_counts(
    cx: &Cx<'_, '_>,
    name: &str,
    signature: &Signature,
    results: &[Operand],
    arguments: &[Operand],
) -> Result {
    let given = (results.len(), arguments.len());
    let wanted = (signature.results.len(), signature.arguments.len());
    if given == wanted {
        return Ok(());
    }
    Err(cx.refuse(format!(
        "function `{name}` has {} arguments and {} results, but {} and {} are given",
        wanted.1, wanted.0, given.1, given.0
    )))
}

/// How a register operand is resolved: as a source, or as a destination.
type Resolve<'k, 'a> = fn(&mut Cx<'k, 'a>, &Operand, ScalarType) -> Result<Slot>;

/// Where the caller has an argument, or wants a result.
fn place_of<'k, 'a>(
    cx: &mut Cx<'k, 'a>,
    operand: &Operand,
    item: &Item,
    resolve: Resolve<'k, 'a>,
) -> Result<Place> {
    if let Operand::Name(name) = operand
        && let Some(Home::Local(at, bytes)) = cx.scopes.variable(name)
    {
        return match item.place {
            _ if bytes < item.bytes => Err(cx.refuse(format!(
                "`{name}` has {bytes} bytes, but the function's parameter has {}",
                item.bytes
            ))),
            Place::Predicate(_) => Err(cx.refuse("a predicate cannot be passed in memory")),
            _ => Ok(Place::Local(at)),
        };
    }
    if item.bytes != item.scalar.bytes() {
        return Err(cx.refuse("an array or structure cannot be passed in a register"));
    }
    let slot = resolve(cx, operand, item.scalar)?;
    Ok(match Class::of(item.scalar) {
        Class::Predicate => Place::Predicate(slot),
        Class::Word | Class::Double => Place::Register(slot),
        Class::Quad => return Err(cx.refuse("a 128-bit value cannot be passed in a register")),
    })
}
