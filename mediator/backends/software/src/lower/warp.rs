//! Operations across the lanes of a warp.

use super::form::Form;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::exec::shuffle as lanes;
use crate::program::{Action, Exec, Op};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;
use ScalarType as T;

impl Lowering<'_, '_> {
    /// Adds an operation across lanes. It waits for the lanes of its member mask, if it has one.
    fn across(&mut self, execute: Exec, members: Option<&Operand>, op: Op) -> Result {
        let (action, d) = match members {
            Some(operand) => (Action::Converge(execute), self.source(operand, T::B32)?),
            None => (Action::Lanes(execute), Slot::default()),
        };
        self.push(Op { action, d, ..op })
    }
}

/// The member mask of a `.sync` form, which is its last operand.
fn members<'a>(
    form: &Form<'a>,
    sync: bool,
    count: usize,
) -> Result<(&'a [Operand], Option<&'a Operand>)> {
    form.done()?;
    let operands = form.instruction.operands.as_slice();
    let split = if sync {
        operands.split_last().map(|(last, rest)| (rest, Some(last)))
    } else {
        Some((operands, None))
    };
    split
        .filter(|(rest, _)| rest.len() == count)
        .ok_or_else(|| form.refuse("has the wrong number of operands"))
}

/// `shfl`
pub(super) fn shuffle(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let sync = form.flag("sync");
    let execute: Exec = match form.one_of(&["up", "down", "bfly", "idx"]) {
        Some("up") => lanes::up,
        Some("down") => lanes::down,
        Some("bfly") => lanes::butterfly,
        Some(_) => lanes::index,
        None => return Err(form.unsupported()),
    };
    form.scalar_of(&[T::B32])?;
    let (operands, members) = members(&form, sync, 4)?;
    let (d, p) = operands[0].pair();
    let a = cx.source(&operands[1], T::B32)?;
    let b = cx.source(&operands[2], T::B32)?;
    let c = cx.source(&operands[3], T::B32)?;
    let (dst, dst2) = (cx.destination(d, T::B32)?, cx.destination(p, T::Pred)?);
    let op = Op {
        dst,
        dst2,
        a,
        b,
        c,
        ..cx.op(Action::Lanes(execute))
    };
    cx.across(execute, members, op)
}

/// `vote`
pub(super) fn vote(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let sync = form.flag("sync");
    let mode = form.one_of(&["all", "any", "uni", "ballot"]);
    let scalar = form.scalar()?;
    let execute: Exec = match (mode, scalar) {
        (Some("all"), T::Pred) => lanes::vote_all,
        (Some("any"), T::Pred) => lanes::vote_any,
        (Some("uni"), T::Pred) => lanes::vote_uniform,
        (Some("ballot"), T::B32) => lanes::ballot,
        _ => return Err(form.unsupported()),
    };
    let (operands, members) = members(&form, sync, 2)?;
    let predicate = cx.predicate(&operands[1])?;
    let dst = cx.destination(&operands[0], scalar)?;
    let op = Op {
        dst,
        a: predicate.slot,
        imm: u64::from(predicate.invert & 1),
        ..cx.op(Action::Lanes(execute))
    };
    cx.across(execute, members, op)
}

/// `match`
pub(super) fn match_lanes(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let sync = form.flag("sync");
    let all = form.one_of(&["all", "any"]) == Some("all");
    let execute: Exec = if all {
        lanes::match_all
    } else {
        lanes::match_any
    };
    let scalar = form.scalar_of(&[T::B32, T::B64])?;
    let (operands, members) = members(&form, sync, 2)?;
    let (d, p) = operands[0].pair();
    let a = cx.source(&operands[1], scalar)?;
    let (dst, dst2) = (cx.destination(d, T::B32)?, cx.destination(p, T::Pred)?);
    let op = Op {
        dst,
        dst2,
        a,
        imm: u64::from(scalar.bytes()),
        ..cx.op(Action::Lanes(execute))
    };
    cx.across(execute, members, op)
}

/// `activemask`
pub(super) fn active_mask(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let scalar = form.scalar()?;
    let [d] = form.operands()?;
    if scalar != T::B32 {
        return Err(form.unsupported());
    }
    let dst = cx.destination(d, scalar)?;
    cx.compute(lanes::active_mask, dst, &[])
}

/// `redux.sync`
pub(super) fn reduce(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let sync = form.flag("sync");
    let operation = form.one_of(&["add", "min", "max", "and", "or", "xor"]);
    let scalar = form.scalar()?;
    let execute: Exec = match (operation, scalar) {
        (Some("add"), T::U32 | T::S32) => lanes::reduce_add,
        (Some("min"), T::U32) => lanes::reduce_min_unsigned,
        (Some("max"), T::U32) => lanes::reduce_max_unsigned,
        (Some("min"), T::S32) => lanes::reduce_min_signed,
        (Some("max"), T::S32) => lanes::reduce_max_signed,
        (Some("and"), T::B32) => lanes::reduce_and,
        (Some("or"), T::B32) => lanes::reduce_or,
        (Some("xor"), T::B32) => lanes::reduce_xor,
        _ => return Err(form.unsupported()),
    };
    let (operands, members) = members(&form, sync, 2)?;
    let a = cx.source(&operands[1], scalar)?;
    let dst = cx.destination(&operands[0], scalar)?;
    let op = Op {
        dst,
        a,
        ..cx.op(Action::Lanes(execute))
    };
    cx.across(execute, members, op)
}

/// `elect.sync`
pub(super) fn elect(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let sync = form.flag("sync");
    let (operands, members) = members(&form, sync, 1)?;
    let (d, p) = operands[0].pair();
    let (dst, dst2) = (cx.destination(d, T::B32)?, cx.destination(p, T::Pred)?);
    let op = Op {
        dst,
        dst2,
        ..cx.op(Action::Lanes(lanes::elect))
    };
    cx.across(lanes::elect, members, op)
}
