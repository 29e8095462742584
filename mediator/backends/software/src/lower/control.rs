//! Branches, barriers, fences, ends (PTX ISA, "Control Flow Instructions" and barriers).

use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::exec::{fence as fence_lanes, system};
use crate::limits::BARRIERS;
use crate::program::{Action, BarrierKind, BarrierSite, Op};
use crate::ptx::ast::{Immediate, Operand, ScalarType};
use ScalarType as T;

/// `bra`
pub(super) fn branch(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    form.flag("uni");
    match form.operands()? {
        [Operand::Name(label)] => cx.branch(label),
        _ => Err(form.refuse("does not name a label")),
    }
}

/// `brx.idx`
pub(super) fn branch_indexed(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    form.flag("uni");
    if !form.flag("idx") {
        return Err(form.unsupported());
    }
    let [index, Operand::Name(name)] = form.operands()? else {
        return Err(form.refuse("does not name a list of targets"));
    };
    let table = cx.scopes.table(name);
    let table = table
        .ok_or_else(|| form.refuse(format!("names `{name}`, which is not a list of targets")))?;
    let a = cx.source(index, T::U32)?;
    cx.push(Op {
        a,
        ..cx.op(Action::BranchIndexed(table))
    })
}

/// `ret`, `exit`
pub(super) fn leave(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    form.flag("uni");
    let [] = form.operands()?;
    if form.instruction.opcode == "exit" {
        cx.emit(Action::Exit)
    } else {
        cx.emit(Action::Return)
    }
}

/// `trap`, `brkpt`
pub(super) fn trap(cx: &mut Lowering<'_, '_>, form: Form<'_>) -> Result {
    let [] = form.operands()?;
    cx.emit(Action::Trap)
}

/// Lowers an instruction that has no effect in this back end.
pub(super) fn nothing(_cx: &mut Lowering<'_, '_>, _form: Form<'_>) -> Result {
    Ok(())
}

/// `nanosleep`
pub(super) fn sleep(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    form.scalar_of(&[T::U32])?;
    let [duration] = form.operands()?;
    let a = cx.source(duration, T::U32)?;
    cx.push(Op {
        a,
        ..cx.op(Action::System(system::sleep))
    })
}

/// `membar`, `fence`
pub(super) fn fence(cx: &mut Lowering<'_, '_>, _form: Form<'_>) -> Result {
    cx.emit(Action::Lanes(fence_lanes))
}

/// `bar`, `barrier`
pub(super) fn barrier(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    if form.flag("warp") {
        form.flag("sync");
        let [mask] = form.operands()?;
        let d = cx.source(mask, T::B32)?;
        return cx.push(Op {
            d,
            ..cx.op(Action::WarpBarrier)
        });
    }
    if form.flag("cluster") {
        return cluster_barrier(cx, &mut form);
    }
    form.flag("cta");
    form.flag("aligned");
    match form.one_of(&["sync", "arrive", "red"]) {
        Some("red") => reducing_barrier(cx, form),
        Some("arrive") => {
            let [id, count] = form.operands()?;
            add(cx, id, Some(count), BarrierKind::Arrive, None)
        }
        Some(_) => {
            form.done()?;
            match form.instruction.operands.as_slice() {
                [id] => add(cx, id, None, BarrierKind::Sync, None),
                [id, count] => add(cx, id, Some(count), BarrierKind::Sync, None),
                _ => Err(form.refuse("takes 1 or 2 operands")),
            }
        }
        None => Err(form.unsupported()),
    }
}

/// A block is a cluster of its own: arriving is nothing, waiting is a barrier of the block.
fn cluster_barrier(cx: &mut Lowering<'_, '_>, form: &mut Form<'_>) -> Result {
    form.discard(|m| matches!(m, "aligned" | "acquire" | "release" | "relaxed"));
    if form.flag("arrive") {
        return form.done();
    }
    if !form.flag("wait") {
        return Err(form.unsupported());
    }
    form.done()?;
    let id = Operand::Immediate(Immediate::Integer(BARRIERS as i128 - 1));
    add(cx, &id, None, BarrierKind::Sync, None)
}

/// What a barrier reduces: the predicate, and where the result goes, as which type.
type Reduction<'a> = (&'a Operand, &'a Operand, ScalarType);

/// Adds a barrier.
fn add(
    cx: &mut Lowering<'_, '_>,
    id: &Operand,
    count: Option<&Operand>,
    kind: BarrierKind,
    reduction: Option<Reduction<'_>>,
) -> Result {
    if let Operand::Immediate(Immediate::Integer(number)) = id
        && !(0..BARRIERS as i128).contains(number)
    {
        let reason = format!("barrier {number} does not exist: a block has {BARRIERS}, from 0 on");
        return Err(cx.refuse(reason));
    }
    let (predicate, dst) = match reduction {
        Some((predicate, destination, scalar)) => (
            Some(cx.predicate(predicate)?),
            cx.destination(destination, scalar)?,
        ),
        None => (None, cx.scratch(Class::Predicate)?),
    };
    let site = BarrierSite {
        id: cx.source(id, T::U32)?,
        count: count.map(|count| cx.source(count, T::U32)).transpose()?,
        kind,
        predicate,
    };
    let index = u32::try_from(cx.program.barriers.len()).unwrap_or(u32::MAX);
    cx.program.barriers.push(site);
    cx.push(Op {
        dst,
        ..cx.op(Action::Barrier(index))
    })
}

/// `bar.red`
fn reducing_barrier(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let operation = form.one_of(&["popc", "and", "or"]);
    let scalar = form.scalar()?;
    let kind = match (operation, scalar) {
        (Some("popc"), T::U32) => BarrierKind::Count,
        (Some("and"), T::Pred) => BarrierKind::All,
        (Some("or"), T::Pred) => BarrierKind::Any,
        _ => return Err(form.unsupported()),
    };
    form.done()?;
    let (d, id, count, predicate) = match form.instruction.operands.as_slice() {
        [d, id, predicate] => (d, id, None, predicate),
        [d, id, count, predicate] => (d, id, Some(count), predicate),
        _ => return Err(form.refuse("takes 3 or 4 operands")),
    };
    add(cx, id, count, kind, Some((predicate, d, scalar)))
}
