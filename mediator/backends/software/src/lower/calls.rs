//! Calls of device functions.

use super::form::Form;
use super::frame::{Class, quad_half};
use super::lowering::Lowering as Cx;
use super::refusal::Result;
use super::scope::Home;
use super::signature::{Item, Signature};
use super::system;
use crate::exec::{compare, predicate};
use crate::program::{Action, CallSite, Move, Place};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::{FrameBytes, Guard, Slot};

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
    if arguments.len() + results.len() > VALUES_MAX {
        return Err(form.refuse(format!("passes more than {VALUES_MAX} values")));
    }
    if cx.register(name)?.is_some() {
        return through_register(cx, name, results, arguments);
    }
    let (number, signature) = cx.program.callee(cx.number, name, cx.line)?;
    check_counts(cx, name, &signature, results, arguments)?;
    add(cx, number, &signature, results, arguments)
}

/// A call of whichever function has the address in register `name`: a call of each that may, by the
/// lanes that mean it. An address of no such function is a trap.
fn through_register(
    cx: &mut Cx<'_, '_>,
    name: &str,
    results: &[Operand],
    arguments: &[Operand],
) -> Result {
    let isa = cx.program.isa;
    let address = cx.source(&Operand::Name(name.to_owned()), ScalarType::U64)?;
    let guard = cx.guard;
    let counts = (results.len(), arguments.len());
    // Lanes that are left: those of the guard that have called nothing yet.
    let left = cx.scratch(Class::Predicate)?;
    let all = cx.constant(1, Class::Predicate)?;
    cx.guard = None;
    let from = guard.map_or(all, |guard| guard.slot);
    let inverted = guard.map_or(0, |guard| u64::from(guard.invert & 1));
    cx.compute_with(predicate::copy, left, &[from], inverted)?;
    let callees = cx.program.callees_by_address(cx.number, counts, cx.line)?;
    for (at, number, signature) in callees {
        if !fits(cx, &signature, results, arguments) {
            continue;
        }
        let at = cx.constant(at, Class::Double)?;
        let (here, other) = (cx.scratch(Class::Predicate)?, cx.scratch(Class::Predicate)?);
        let equal = compare(isa, |a: u64, b: u64| a == b);
        cx.compare(equal, [here, other], [address, at])?;
        cx.compute(predicate::and, here, &[here, left])?;
        cx.compute(predicate::and, left, &[left, other])?;
        cx.guard = Some(Guard {
            slot: here,
            invert: 0,
        });
        add(cx, number, &signature, results, arguments)?;
        cx.guard = None;
    }
    cx.guard = Some(Guard {
        slot: left,
        invert: 0,
    });
    cx.emit(Action::Trap)
}

/// Returns whether the values in `.param` variables have the sizes of a signature.
fn fits(
    cx: &Cx<'_, '_>,
    signature: &Signature,
    results: &[Operand],
    arguments: &[Operand],
) -> bool {
    let items = signature.results.iter().chain(&signature.arguments);
    let given = results.iter().chain(arguments);
    items.zip(given).all(|(item, operand)| {
        let Operand::Name(name) = operand else {
            return true;
        };
        match cx.scopes.variable(name) {
            Some(Home::Local(_, bytes)) => bytes == item.bytes,
            _ => true,
        }
    })
}

/// Adds the call of function number `number`.
fn add(
    cx: &mut Cx<'_, '_>,
    number: usize,
    signature: &Signature,
    results: &[Operand],
    arguments: &[Operand],
) -> Result {
    cx.program.take(arguments.len() + results.len(), cx.line)?;
    let mut inward = Vec::with_capacity(arguments.len());
    for (operand, item) in arguments.iter().zip(&signature.arguments) {
        let from = place_of(cx, operand, item, Cx::source)?;
        inward.extend(moves(from, item.place, item));
    }
    let mut outward = Vec::with_capacity(results.len());
    for (operand, item) in results.iter().zip(&signature.results) {
        let to = place_of(cx, operand, item, Cx::destination)?;
        outward.extend(moves(item.place, to, item));
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

/// Returns what moves an argument or result between two frames: one move, or two for a value of 128
/// bits of which one side is a register, because the halves of such a register are apart.
fn moves(from: Place, to: Place, item: &Item) -> impl Iterator<Item = Move> {
    let whole = Move {
        from,
        to,
        bytes: item.bytes,
    };
    let half = |index| {
        let at = |place| match place {
            Place::Local(offset) => Place::Local(offset + 8 * index),
            Place::Register(slot) => Place::Register(quad_half(slot, index)),
            Place::Predicate(slot) => Place::Predicate(slot),
        };
        Move {
            from: at(from),
            to: at(to),
            bytes: 8,
        }
    };
    let is_register = |place| matches!(place, Place::Register(_));
    let is_quad = Class::of(item.scalar) == Class::Quad;
    match is_quad && (is_register(from) || is_register(to)) {
        true => [Some(half(0)), Some(half(1))],
        false => [Some(whole), None],
    }
    .into_iter()
    .flatten()
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
        Class::Word | Class::Double | Class::Quad => Place::Register(slot),
    })
}
