//! Operations across the lanes of a warp.

use super::form::Form;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::exec::shuffle as lanes;
use crate::program::{Action, Exec, Op};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;
use ScalarType as T;

/// An operand that an operation does not have.
const NONE: Slot = Slot(0);

impl Lowering<'_, '_> {
    /// Adds an operation across lanes. The operation waits for the lanes of its member mask, if it
    /// has one.
    fn across(
        &mut self,
        execute: Exec,
        members: Option<&Operand>,
        [dst, dst2]: [Slot; 2],
        [a, b, c]: [Slot; 3],
        imm: u64,
    ) -> Result {
        let (action, d) = match members {
            Some(operand) => (Action::Converge(execute), self.source(operand, T::B32)?),
            None => (Action::Lanes(execute), NONE),
        };
        self.push(Op {
            dst,
            dst2,
            a,
            b,
            c,
            d,
            imm,
            ..self.op(action)
        })
    }
}

/// Operands of an instruction, less the member mask of a `.sync` form, which is the last; and that.
fn members<'a, const N: usize>(
    form: &Form<'a>,
    sync: bool,
) -> Result<(&'a [Operand; N], Option<&'a Operand>)> {
    form.done()?;
    let operands = form.instruction.operands.as_slice();
    let (rest, members) = match operands.split_last() {
        Some((last, rest)) if sync => (rest, Some(last)),
        _ => (operands, None),
    };
    let rest = rest.try_into();
    let rest = rest.map_err(|_| form.refuse("has the wrong number of operands"))?;
    Ok((rest, members))
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
    let ([d, a, b, c], members) = members(&form, sync)?;
    let (d, p) = d.pair();
    let sources = cx.sources([a, b, c], [T::B32; 3])?;
    let targets = [cx.destination(d, T::B32)?, cx.destination(p, T::Pred)?];
    cx.across(execute, members, targets, sources, 0)
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
    let ([d, predicate], members) = members(&form, sync)?;
    let predicate = cx.predicate(predicate)?;
    let dst = cx.destination(d, scalar)?;
    let sources = [predicate.slot, NONE, NONE];
    let invert = u64::from(predicate.invert & 1);
    cx.across(execute, members, [dst, NONE], sources, invert)
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
    let ([d, a], members) = members(&form, sync)?;
    let (d, p) = d.pair();
    let a = cx.source(a, scalar)?;
    let targets = [cx.destination(d, T::B32)?, cx.destination(p, T::Pred)?];
    let bytes = u64::from(scalar.bytes());
    cx.across(execute, members, targets, [a, NONE, NONE], bytes)
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
    let ([d, a], members) = members(&form, sync)?;
    let a = cx.source(a, scalar)?;
    let dst = cx.destination(d, scalar)?;
    cx.across(execute, members, [dst, NONE], [a, NONE, NONE], 0)
}

/// `elect.sync`
pub(super) fn elect(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let sync = form.flag("sync");
    let ([d], members) = members(&form, sync)?;
    let (d, p) = d.pair();
    let targets = [cx.destination(d, T::B32)?, cx.destination(p, T::Pred)?];
    cx.across(lanes::elect, members, targets, [NONE; 3], 0)
}
