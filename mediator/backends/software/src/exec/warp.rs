//! The heart of execution: runs the groups of one warp until they wait, end, or have used up their
//! slice.

use super::access::lanes;
use super::barrier::{Arrival, Barriers};
use super::context::Context;
use super::fault::Trouble;
use super::groups::{Group, Groups, State, merge};
use super::{call, converge};
use crate::limits::BARRIERS;
use crate::program::{Action, BarrierKind, Op, Program, Step};
use crate::registers::{FrameBytes, WARP};

/// Backward branches after which other groups, and other warps, get their turn.
const SLICE_BRANCHES: u32 = 4096;
/// As many where blocks wait for each other, and each wait is a loop.
const SHORT_SLICE_BRANCHES: u32 = 64;
/// Instructions, about, after which other warps get their turn, and it is seen whether the launch
/// shall end. Loops may be long, and calls can multiply without a branch.
const SLICE_INSTRUCTIONS: u32 = 1 << 16;

/// Instructions of a slice that a call of a function of the back end takes.
const SYSTEM_INSTRUCTIONS: u32 = SLICE_INSTRUCTIONS / 16;

/// Why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// All of its lanes have ended.
    Done,
    /// Its lanes wait for other warps (or for what never comes).
    Blocked,
    /// Its slice is used up.
    Expired,
}

/// A warp of a running block.
#[derive(Debug)]
pub(super) struct Warp {
    /// Number in the block.
    pub(super) number: u32,
    /// Where its lanes are.
    pub(super) groups: Groups,
    /// Thread-instructions executed so far.
    pub(super) instructions: u64,
    slice_branches: u32,
    branches_left: u32,
    instructions_left: u32,
}

/// What the running group does next.
enum Turn {
    /// Goes on at its position.
    On,
    /// Is among the groups, or has ended.
    Over,
}

impl Warp {
    /// Bytes of a warp, with those of its groups.
    #[cfg(test)]
    pub(super) const BYTES: usize = size_of::<Self>() + WARP * size_of::<Group>();

    /// A warp with room for all the groups it can have. With `short` slices, other warps get their
    /// turn soon if it waits for them.
    pub(super) fn new(number: u32, short: bool) -> Self {
        Self {
            number,
            slice_branches: if short {
                SHORT_SLICE_BRANCHES
            } else {
                SLICE_BRANCHES
            },
            groups: Groups {
                waiting: Vec::with_capacity(WARP),
                running: 0,
            },
            instructions: 0,
            branches_left: 0,
            instructions_left: 0,
        }
    }

    /// Puts the warp at the start of the kernel.
    pub(super) fn start(&mut self, lanes: u32) {
        self.groups.running = lanes;
        self.branches_left = self.slice_branches;
        self.groups.waiting.clear();
        self.groups.waiting.push(Group {
            mask: lanes,
            pc: 0,
            frame: FrameBytes::default(),
            state: State::Ready,
            slices: 0,
        });
    }

    /// Runs until no group can go on. Registers and local memory of this warp are bound in the
    /// context.
    pub(super) fn run(
        &mut self,
        program: &Program,
        context: &mut Context<'_>,
        barriers: &mut Barriers,
    ) -> Result<Pause, (u32, Trouble)> {
        // What is left of them counts on: a loop spins however many instructions it has.
        if self.branches_left == 0 {
            self.branches_left = self.slice_branches;
        }
        self.instructions_left = SLICE_INSTRUCTIONS;
        loop {
            let Some(mut group) = self.pick(program, context, barriers) else {
                return Ok(if self.groups.waiting.is_empty() {
                    Pause::Done
                } else {
                    Pause::Blocked
                });
            };
            context.bind_frame(group.frame);
            let expired = self
                .run_group(&mut group, program, context, barriers)
                .map_err(|trouble| (group.pc, trouble))?;
            if expired {
                return Ok(Pause::Expired);
            }
        }
    }

    /// Takes the group that runs next, with all that are at the same place.
    fn pick(
        &mut self,
        program: &Program,
        context: &mut Context<'_>,
        barriers: &Barriers,
    ) -> Option<Group> {
        for group in &mut self.groups.waiting {
            if let State::Barrier { id, generation } = group.state
                && barriers.generation(id) != generation
            {
                leave_barrier(context, program, barriers, id, group);
            }
        }
        let ready = self.groups.waiting.iter().enumerate();
        let next = ready
            .filter(|(_, g)| g.state == State::Ready)
            .min_by_key(|(_, g)| g.order())
            .map(|(index, _)| index);
        let next = next.or_else(|| converge::release(&mut self.groups, program, context))?;
        let mut group = self.groups.waiting.swap_remove(next);
        if !self.groups.waiting.is_empty() {
            merge(&mut self.groups.waiting, &mut group);
        }
        Some(group)
    }

    /// Runs a group until its turn is over; true if the slice of the warp is used up.
    fn run_group(
        &mut self,
        group: &mut Group,
        program: &Program,
        context: &mut Context<'_>,
        barriers: &mut Barriers,
    ) -> Result<bool, Trouble> {
        let mut from = program.code[group.pc as usize].ordinal;
        loop {
            let op = &program.code[group.pc as usize];
            if op.leader
                && self
                    .groups
                    .waiting
                    .iter()
                    .any(|other| other.goes_before(group))
            {
                self.count(group.mask, from, op.ordinal);
                self.groups.waiting.push(*group);
                return Ok(false);
            }
            let mask = match op.guard {
                None => group.mask,
                Some(guard) => group.mask & context.guarded(guard),
            };
            if op.run != 0
                && group.mask == u32::MAX
                && let Some(compiled) = &program.compiled
            {
                // SAFETY: as below.
                let done = unsafe { compiled.execute(op.run, context.banks()) };
                if let Some(done) = done {
                    group.pc += done;
                    continue;
                }
            }
            if let Action::Lanes(execute) = op.action {
                context.mask = mask;
                // SAFETY: the operation belongs to the program of the context, and its frame is
                // bound.
                if mask != 0 && unsafe { execute(context, op) } == Step::Fault {
                    return Err(context.trouble.take().unwrap_or(Trouble::Trap));
                }
                group.pc += 1;
                continue;
            }
            self.count(group.mask, from, op.ordinal + 1);
            match self.control(group, mask, op, program, context, barriers)? {
                Turn::On => from = program.code[group.pc as usize].ordinal,
                Turn::Over => return Ok(self.branches_left == 0 || self.instructions_left == 0),
            }
            if self.branches_left == 0 {
                group.slices += 1;
                self.groups.waiting.push(*group);
                return Ok(true);
            }
            // This is no sign of spinning: which group goes first stays as it is.
            if self.instructions_left == 0 {
                self.groups.waiting.push(*group);
                return Ok(true);
            }
        }
    }

    fn count(&mut self, mask: u32, from: u32, to: u32) {
        self.instructions_left = self.instructions_left.saturating_sub(to - from);
        self.instructions += u64::from(to - from) * u64::from(mask.count_ones());
    }

    /// Executes an operation that is about where lanes go.
    fn control(
        &mut self,
        group: &mut Group,
        mask: u32,
        op: &Op,
        program: &Program,
        context: &mut Context<'_>,
        barriers: &mut Barriers,
    ) -> Result<Turn, Trouble> {
        if mask == 0 {
            group.pc += 1;
            return Ok(Turn::On);
        }
        context.mask = mask;
        match op.action {
            Action::Branch(target) => Ok(self.branch(group, mask, target)),
            Action::BranchIndexed(table) => {
                self.groups.split(group, mask);
                let targets = &program.tables[table as usize];
                self.branch_indexed(group, &context.words(op.a), targets)
            }
            Action::Call(site) => {
                self.groups.split(group, mask);
                let site = &program.calls[site as usize];
                let moves = site.arguments.len() + site.results.len();
                self.instructions_left = self.instructions_left.saturating_sub(moves as u32);
                call::enter(group, site, program, context).map(|()| Turn::On)
            }
            Action::Return if group.frame.registers != 0 => {
                self.groups.split(group, mask);
                call::leave(&mut self.groups.waiting, *group, program, context);
                Ok(Turn::Over)
            }
            Action::Return | Action::Exit => {
                self.groups.split(group, mask);
                self.groups.running &= !group.mask;
                barriers.end(self.number, group.mask);
                Ok(Turn::Over)
            }
            Action::Trap => Err(Trouble::Trap),
            Action::Barrier(site) => {
                self.groups.split(group, mask);
                self.block_barrier(group, program, site, context, barriers)
            }
            Action::Converge(execute) => {
                if !converge::gather(&mut self.groups, group, mask, op, context) {
                    return Ok(Turn::Over);
                }
                context.mask = group.mask;
                // SAFETY: as in `run_group`.
                if unsafe { execute(context, op) } == Step::Fault {
                    return Err(context.trouble.take().unwrap_or(Trouble::Trap));
                }
                group.pc += 1;
                Ok(Turn::On)
            }
            Action::WarpBarrier => {
                if !converge::gather(&mut self.groups, group, mask, op, context) {
                    return Ok(Turn::Over);
                }
                group.pc += 1;
                Ok(Turn::On)
            }
            Action::System(execute) => {
                self.instructions_left = self.instructions_left.saturating_sub(SYSTEM_INSTRUCTIONS);
                // SAFETY: as in `run_group`.
                if unsafe { execute(context, op) } == Step::Fault {
                    return Err(context.trouble.take().unwrap_or(Trouble::Trap));
                }
                group.pc += 1;
                Ok(Turn::On)
            }
            Action::Lanes(_) => Ok(Turn::On),
        }
    }

    fn branch(&mut self, group: &mut Group, mask: u32, target: u32) -> Turn {
        if target <= group.pc {
            self.branches_left = self.branches_left.saturating_sub(1);
        }
        if mask == group.mask {
            group.pc = target;
            return Turn::On;
        }
        self.groups.waiting.push(Group {
            mask,
            pc: target,
            ..*group
        });
        group.mask &= !mask;
        group.pc += 1;
        // The operation behind a branch is a leader: the group that goes first is chosen there.
        Turn::On
    }

    fn branch_indexed(
        &mut self,
        group: &Group,
        indices: &[u32; 32],
        targets: &[u32],
    ) -> Result<Turn, Trouble> {
        let mut left = group.mask;
        while left != 0 {
            let index = indices[(left.trailing_zeros() & 31) as usize];
            let same = lanes(left)
                .filter(|lane| indices[*lane] == index)
                .fold(0, |mask, lane| mask | 1 << lane);
            let Some(target) = targets.get(index as usize) else {
                return Err(Trouble::Trap);
            };
            if *target <= group.pc {
                self.branches_left = self.branches_left.saturating_sub(1);
            }
            self.groups.waiting.push(Group {
                mask: same,
                pc: *target,
                slices: group.slices + u32::from(self.branches_left == 0),
                ..*group
            });
            left &= !same;
        }
        Ok(Turn::Over)
    }

    fn block_barrier(
        &mut self,
        group: &mut Group,
        program: &Program,
        site: u32,
        context: &Context<'_>,
        barriers: &mut Barriers,
    ) -> Result<Turn, Trouble> {
        let site = &program.barriers[site as usize];
        let first = group.mask.trailing_zeros();
        let id = context.word(site.id, first);
        if id as usize >= BARRIERS {
            return Err(Trouble::Deadlock(format!(
                "barrier {id} does not exist: a block has {BARRIERS}, from 0 on"
            )));
        }
        let same = lanes(group.mask)
            .filter(|lane| context.word(site.id, *lane as u32) == id)
            .fold(0, |mask, lane| mask | 1 << lane);
        self.groups.leave_others(group, same);
        let waits = site.kind != BarrierKind::Arrive;
        let generation = barriers.generation(id);
        let arrival = Arrival {
            warp: self.number,
            lanes: group.mask,
            truths: site.predicate.map_or(0, |p| context.guarded(p)),
            expected: site.count.map(|count| context.word(count, first)),
            waits,
        };
        barriers.arrive(id, arrival);
        if !waits {
            group.pc += 1;
            return Ok(Turn::On);
        }
        group.state = State::Barrier { id, generation };
        self.groups.waiting.push(*group);
        Ok(Turn::Over)
    }
}

/// Lets a group go on behind a barrier that is complete, with the result if it reduces something.
fn leave_barrier(
    context: &mut Context<'_>,
    program: &Program,
    barriers: &Barriers,
    id: u32,
    group: &mut Group,
) {
    let op = &program.code[group.pc as usize];
    let outcome = barriers.outcome(id);
    context.bind_frame(group.frame);
    context.mask = group.mask;
    if let Action::Barrier(site) = op.action {
        match program.barriers[site as usize].kind {
            BarrierKind::Arrive | BarrierKind::Sync => {}
            BarrierKind::Count => context.set_words(op.dst, &[outcome.truths; 32]),
            BarrierKind::All => {
                context.set_uniform(op.dst, outcome.truths == outcome.threads);
            }
            BarrierKind::Any => context.set_uniform(op.dst, outcome.truths != 0),
        }
    }
    group.state = State::Ready;
    group.pc += 1;
}
