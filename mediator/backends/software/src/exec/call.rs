//! Calls of device functions: a frame of registers and local memory for each depth of calls.
//!
//! Lanes that call from different places meet in the callee. Where each goes back to is therefore
//! kept lane by lane, in the header of the callee's frame.

use super::access::lanes;
use super::context::Context;
use super::fault::Trouble;
use super::groups::{Group, State};
use crate::program::{Action, CallSite, Move, Place, Program};
use crate::registers::{FrameBytes, Slot, WORD_BYTES};

const RETURN_PC: Slot = Slot(0);
const RETURN_REGISTERS: Slot = Slot(WORD_BYTES);
const RETURN_LOCAL: Slot = Slot(2 * WORD_BYTES);

/// Moves a group into the function that it calls.
pub(super) fn enter(
    group: &mut Group,
    site: &CallSite,
    program: &Program,
    context: &mut Context<'_>,
) -> Result<(), Trouble> {
    let from = group.frame;
    let to = FrameBytes {
        registers: from.registers + site.distance.registers,
        local: from.local + site.distance.local,
    };
    let stack = program.stack;
    if to.registers + site.callee.registers > stack.registers
        || to.local + site.callee.local > stack.local
    {
        return Err(Trouble::CallDepth);
    }
    context.mask = group.mask;
    for item in &site.arguments {
        carry(context, item, from, to);
    }
    context.bind_frame(to);
    context.set_words(RETURN_PC, &[group.pc + 1; 32]);
    context.set_words(RETURN_REGISTERS, &[from.registers; 32]);
    context.set_words(RETURN_LOCAL, &[from.local; 32]);
    group.pc = site.target;
    group.frame = to;
    Ok(())
}

/// Takes a group back to where its lanes were called from, and adds to `groups` one group for each
/// of these places.
pub(super) fn leave(
    groups: &mut Vec<Group>,
    group: Group,
    program: &Program,
    context: &mut Context<'_>,
) {
    context.bind_frame(group.frame);
    let pcs = context.words(RETURN_PC);
    let registers = context.words(RETURN_REGISTERS);
    let locals = context.words(RETURN_LOCAL);
    let mut left = group.mask;
    while left != 0 {
        let first = (left.trailing_zeros() & 31) as usize;
        let place = (pcs[first], registers[first], locals[first]);
        let same = lanes(left)
            .filter(|l| (pcs[*l], registers[*l], locals[*l]) == place)
            .fold(0, |mask, lane| mask | 1 << lane);
        let frame = FrameBytes {
            registers: place.1,
            local: place.2,
        };
        if let Action::Call(site) = program.code[place.0 as usize - 1].action {
            context.mask = same;
            for item in &program.calls[site as usize].results {
                carry(context, item, group.frame, frame);
            }
        }
        groups.push(Group {
            mask: same,
            pc: place.0,
            frame,
            state: State::Ready,
            slices: group.slices,
        });
        left &= !same;
    }
}

/// Moves one value between frames, for the active lanes.
fn carry(context: &mut Context<'_>, item: &Move, from: FrameBytes, to: FrameBytes) {
    for lane in lanes(context.mask) {
        let source = place(context, item.from, from, lane, item.bytes);
        let target = place(context, item.to, to, lane, item.bytes);
        match (source, target) {
            (At::Bytes(source), At::Bytes(target)) => {
                // SAFETY: lowering made both places this large within their frames, whose places
                // differ.
                unsafe { std::ptr::copy(source, target, item.bytes as usize) };
            }
            (At::Bit(source), At::Bit(target)) => {
                // SAFETY: as above; predicates are 32-bit words.
                unsafe {
                    let bit = *source & (1 << lane);
                    *target = (*target & !(1 << lane)) | bit;
                }
            }
            (At::Bit(_), At::Bytes(_)) | (At::Bytes(_), At::Bit(_)) => {}
        }
    }
}

enum At {
    Bytes(*mut u8),
    Bit(*mut u32),
}

fn place(
    context: &mut Context<'_>,
    place: Place,
    frame: FrameBytes,
    lane: usize,
    bytes: u32,
) -> At {
    context.bind_frame(frame);
    match place {
        Place::Local(offset) => {
            let area = context.local;
            let start = lane * area.bytes as usize + (frame.local + offset) as usize;
            At::Bytes(area.base.wrapping_add(start))
        }
        // Lanes of a register are 4 or 8 bytes apart; a narrow value is in the low bytes of its
        // lane.
        Place::Register(slot) => {
            let stride = if bytes > 4 { 8 } else { 4 };
            At::Bytes(context.slot::<u8>(slot).wrapping_add(lane * stride))
        }
        Place::Predicate(slot) => At::Bit(context.slot::<u32>(slot)),
    }
}
