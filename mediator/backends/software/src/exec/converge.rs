//! Operations across the lanes of a warp wait here until the lanes named in their member mask have
//! arrived.

use super::context::Context;
use super::groups::{Group, Groups, State};
use crate::program::{Action, Op, Program};

/// Brings together the lanes that execute `op`. Returns false if some are missing; the group then
/// waits among the others.
pub(super) fn gather(
    groups: &mut Groups,
    group: &mut Group,
    mask: u32,
    op: &Op,
    context: &Context<'_>,
) -> bool {
    groups.split(group, mask);
    let members = context.word(op.d, mask.trailing_zeros());
    let members_of = |lane: usize| context.word(op.d, lane as u32);
    let same = super::access::lanes(mask)
        .filter(|lane| members_of(*lane) == members)
        .fold(0, |all, lane| all | 1 << lane);
    groups.leave_others(group, same);
    groups.waiting.retain(|other| {
        let joins = other.state == State::Converging
            && other.pc == group.pc
            && other.frame == group.frame
            && members_of(other.mask.trailing_zeros() as usize) == members;
        if joins {
            group.mask |= other.mask;
        }
        !joins
    });
    if members & groups.running & !group.mask == 0 {
        return true;
    }
    groups.waiting.push(Group {
        state: State::Converging,
        ..*group
    });
    false
}

/// Lets a waiting group continue without the lanes that it waits for, if these have ended, or, at
/// `bar.warp.sync`, wait at another `bar.warp.sync`. Returns the index of a group that is ready.
pub(super) fn release(
    groups: &mut Groups,
    program: &Program,
    context: &mut Context<'_>,
) -> Option<usize> {
    let at_barrier: u32 = groups
        .waiting
        .iter()
        .filter(|g| is_waiting_at_warp_barrier(g, program))
        .fold(0, |mask, group| mask | group.mask);
    let mut ready = None;
    for (index, group) in groups.waiting.iter_mut().enumerate() {
        if group.state != State::Converging {
            continue;
        }
        context.bind_frame(group.frame);
        let op = &program.code[group.pc as usize];
        let members = context.word(op.d, group.mask.trailing_zeros());
        let missing = members & groups.running & !group.mask;
        if matches!(op.action, Action::WarpBarrier) && missing & !at_barrier == 0 {
            group.state = State::Ready;
            group.pc += 1;
            ready = Some(index);
        } else if missing == 0 {
            group.state = State::Ready;
            ready = Some(index);
        }
    }
    ready
}

fn is_waiting_at_warp_barrier(group: &Group, program: &Program) -> bool {
    group.state == State::Converging
        && matches!(program.code[group.pc as usize].action, Action::WarpBarrier)
}
