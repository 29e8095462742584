//! Predicates: one bit per lane, so that a whole warp's are one word.

use super::Context;
use crate::program::{Op, Step};

crate::modifiers::modifiers! {
    /// How `setp` combines a comparison with another predicate. Bits 1:0 of `Op::imm`; bit 2
    /// inverts the predicate.
    Combine {
        Nothing,
        And = "and",
        Or = "or",
        Xor = "xor",
    }
}

/// Bit of `Op::imm` that inverts the predicate in `Op::c`.
pub(crate) const INVERT: u64 = 4;

/// Bit of `Op::imm` that inverts the outcome of the comparison itself.
pub(crate) const INVERT_OUTCOME: u64 = 8;

/// Writes the outcome of a comparison to `dst`, and that of its opposite to `dst2`.
#[inline(always)]
pub(super) fn conclude(context: &Context<'_>, op: &Op, truth: u32) {
    let truth = truth ^ u32::from(op.imm & INVERT_OUTCOME != 0).wrapping_neg();
    if op.imm & 3 == Combine::Nothing as u64 {
        context.set_predicate(op.dst, truth);
        context.set_predicate(op.dst2, !truth);
        return;
    }
    let mut other = context.predicate(op.c);
    if op.imm & INVERT != 0 {
        other = !other;
    }
    let combine = |truth: u32| match op.imm & 3 {
        1 => truth & other,
        2 => truth | other,
        _ => truth ^ other,
    };
    context.set_predicate(op.dst, combine(truth));
    context.set_predicate(op.dst2, combine(!truth));
}

macro_rules! logic {
    ($($(#[$doc:meta])* $name:ident: |$a:ident, $b:ident| $value:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) unsafe fn $name(context: &mut Context<'_>, op: &Op) -> Step {
            let invert = (op.imm as u32 & 1).wrapping_neg();
            let ($a, $b) = (context.predicate(op.a) ^ invert, context.predicate(op.b));
            context.set_predicate(op.dst, $value);
            Step::Next
        }
    )*};
}

logic! {
    /// `and.pred`
    and: |a, b| a & b;
    /// `or.pred`
    or: |a, b| a | b;
    /// `xor.pred`
    xor: |a, b| a ^ b;
    /// `not.pred`
    not: |a, _b| !a;
    /// `mov.pred`; bit 0 of `imm` inverts.
    copy: |a, _b| a;
}
