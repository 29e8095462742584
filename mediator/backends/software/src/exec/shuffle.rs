//! Operations across lanes: shuffle, vote, match, reduce, elect (PTX ISA, "Parallel Synchronization
//! and Communication Instructions"). They run once the lanes of the member mask are together.

use super::Context;
use super::access::lanes;
use crate::program::{Op, Step};
use crate::registers::WARP;

/// Source lane of `shfl` for `lane`, and whether it is in range. `b`: lane or delta; `c`: clamp and
/// segment mask.
type SourceLane = fn(lane: u32, b: u32, clamp: u32, segment: u32) -> (u32, bool);

fn shuffle(context: &mut Context<'_>, op: &Op, source: SourceLane) -> Step {
    let (values, offsets, controls) = (
        context.words(op.a),
        context.words(op.b),
        context.words(op.c),
    );
    let mut result = [0; WARP];
    let mut truth = 0;
    for lane in lanes(context.mask) {
        let (offset, control) = (offsets[lane] & 31, controls[lane]);
        let (clamp, segment) = (control & 31, (control >> 8) & 31);
        let (from, valid) = source(lane as u32, offset, clamp, segment);
        let from = if valid { from as usize & 31 } else { lane };
        result[lane] = values[from];
        truth |= u32::from(valid) << lane;
    }
    context.set_words(op.dst, &result);
    context.set_predicate(op.dst2, truth);
    Step::Next
}

const fn last_lane(lane: u32, clamp: u32, segment: u32) -> u32 {
    (lane & segment) | (clamp & !segment)
}

/// `shfl.up`
pub(crate) unsafe fn up(context: &mut Context<'_>, op: &Op) -> Step {
    shuffle(context, op, |lane, delta, clamp, segment| {
        let last = last_lane(lane, clamp, segment).cast_signed();
        let from = lane.cast_signed() - delta.cast_signed();
        (from.cast_unsigned(), from >= last)
    })
}

/// `shfl.down`
pub(crate) unsafe fn down(context: &mut Context<'_>, op: &Op) -> Step {
    shuffle(context, op, |lane, delta, clamp, segment| {
        let from = lane + delta;
        (from, from <= last_lane(lane, clamp, segment))
    })
}

/// `shfl.bfly`
pub(crate) unsafe fn butterfly(context: &mut Context<'_>, op: &Op) -> Step {
    shuffle(context, op, |lane, mask, clamp, segment| {
        let from = lane ^ mask;
        (from, from <= last_lane(lane, clamp, segment))
    })
}

/// `shfl.idx`
pub(crate) unsafe fn index(context: &mut Context<'_>, op: &Op) -> Step {
    shuffle(context, op, |lane, wanted, clamp, segment| {
        let from = (lane & segment) | (wanted & !segment);
        (from, from <= last_lane(lane, clamp, segment))
    })
}

/// Predicate `a` of the executing lanes, inverted by bit 0 of `imm`.
fn ballot_of(context: &Context<'_>, op: &Op) -> u32 {
    (context.predicate(op.a) ^ (op.imm as u32 & 1).wrapping_neg()) & context.mask
}

macro_rules! votes {
    ($($(#[$doc:meta])* $name:ident: |$ballot:ident, $mask:ident| $truth:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) unsafe fn $name(context: &mut Context<'_>, op: &Op) -> Step {
            let ($ballot, $mask) = (ballot_of(context, op), context.mask);
            context.set_uniform(op.dst, $truth);
            Step::Next
        }
    )*};
}

votes! {
    /// `vote.all`
    vote_all: |ballot, mask| ballot == mask;
    /// `vote.any`
    vote_any: |ballot, _mask| ballot != 0;
    /// `vote.uni`
    vote_uniform: |ballot, mask| ballot == 0 || ballot == mask;
}

/// `vote.ballot`
pub(crate) unsafe fn ballot(context: &mut Context<'_>, op: &Op) -> Step {
    let ballot = ballot_of(context, op);
    context.set_words(op.dst, &[ballot; WARP]);
    Step::Next
}

/// `activemask`
pub(crate) unsafe fn active_mask(context: &mut Context<'_>, op: &Op) -> Step {
    context.set_words(op.dst, &[context.mask; WARP]);
    Step::Next
}

/// `elect.sync`: the lowest lane; `dst` gets its number, `dst2` is true there.
pub(crate) unsafe fn elect(context: &mut Context<'_>, op: &Op) -> Step {
    let leader = context.mask.trailing_zeros();
    context.set_words(op.dst, &[leader; WARP]);
    context.set_predicate(op.dst2, 1 << (leader & 31));
    Step::Next
}

/// Values of the executing lanes, words widened.
fn doubles(context: &Context<'_>, op: &Op) -> [u64; WARP] {
    if op.imm == 8 {
        // SAFETY: lowering gives `a` a double register when `imm` is 8.
        unsafe { *context.slot::<[u64; WARP]>(op.a) }
    } else {
        context.words(op.a).map(u64::from)
    }
}

/// `match.any`: the lanes that have the same value. `imm`: bytes of the value.
pub(crate) unsafe fn match_any(context: &mut Context<'_>, op: &Op) -> Step {
    let values = doubles(context, op);
    let mut result = [0; WARP];
    for lane in lanes(context.mask) {
        result[lane] = lanes(context.mask)
            .filter(|other| values[*other] == values[lane])
            .fold(0, |mask, other| mask | 1 << other);
    }
    context.set_words(op.dst, &result);
    Step::Next
}

/// `match.all`: the member mask if all lanes have the same value, else 0; `dst2`: whether they
/// have.
pub(crate) unsafe fn match_all(context: &mut Context<'_>, op: &Op) -> Step {
    let values = doubles(context, op);
    let first = values[(context.mask.trailing_zeros() & 31) as usize];
    let same = lanes(context.mask).all(|lane| values[lane] == first);
    context.set_words(op.dst, &[if same { context.mask } else { 0 }; WARP]);
    context.set_uniform(op.dst2, same);
    Step::Next
}

fn reduce(context: &mut Context<'_>, op: &Op, combine: fn(u32, u32) -> u32) -> Step {
    let values = context.words(op.a);
    let combined = lanes(context.mask).map(|lane| values[lane]).reduce(combine);
    context.set_words(op.dst, &[combined.unwrap_or(0); WARP]);
    Step::Next
}

macro_rules! reductions {
    ($($name:ident: $combine:expr;)*) => {$(
        /// `redux.sync`
        pub(crate) unsafe fn $name(context: &mut Context<'_>, op: &Op) -> Step {
            reduce(context, op, $combine)
        }
    )*};
}

reductions! {
    reduce_add: u32::wrapping_add;
    reduce_and: |a, b| a & b;
    reduce_or: |a, b| a | b;
    reduce_xor: |a, b| a ^ b;
    reduce_min_unsigned: u32::min;
    reduce_max_unsigned: u32::max;
    reduce_min_signed: |a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned();
    reduce_max_signed: |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned();
}
