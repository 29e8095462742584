//! Comparison and selection (PTX ISA, "Comparison and Selection Instructions").

use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::arith::compare::{Property, testp_f32, testp_f64};
use crate::arith::float16::Half;
use crate::arith::float32;
use crate::exec::predicate::{Combine, INVERT, INVERT_OUTCOME};
use crate::exec::{compare, select as select_lanes, ternary, unary};
use crate::isa::Isa;
use crate::meaning::{Meaning, Test, Width};
use crate::program::{Action, Exec, Op};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::{Guard, Slot};
use ScalarType as T;

/// A comparison made of few lane functions: with its operands exchanged, its outcome inverted.
#[derive(Clone, Copy)]
struct Relation {
    execute: Exec,
    meaning: Option<Meaning>,
    exchanged: bool,
    inverted: bool,
}

fn relation(isa: Isa, operator: &str, scalar: ScalarType) -> Option<Relation> {
    if matches!(scalar, T::F32 | T::F64) {
        float_relation(isa, operator, scalar)
    } else {
        integer_relation(isa, operator, scalar)
    }
}

fn integer_relation(isa: Isa, operator: &str, scalar: ScalarType) -> Option<Relation> {
    // a >= b is not a < b; a > b is b < a.
    let (equality, exchanged, inverted) = match operator {
        "eq" => (true, false, false),
        "ne" => (true, false, true),
        "lt" | "lo" => (false, false, false),
        "ge" | "hs" => (false, false, true),
        "gt" | "hi" => (false, true, false),
        "le" | "ls" => (false, true, true),
        _ => return None,
    };
    let execute = match (scalar, equality) {
        (T::U32 | T::S32 | T::B32, true) => compare(isa, |a: u32, b: u32| a == b),
        (T::U64 | T::S64 | T::B64, true) => compare(isa, |a: u64, b: u64| a == b),
        (T::U32 | T::B32, _) => compare(isa, |a: u32, b: u32| a < b),
        (T::S32, _) => compare(isa, |a: i32, b: i32| a < b),
        (T::U64 | T::B64, _) => compare(isa, |a: u64, b: u64| a < b),
        (T::S64, _) => compare(isa, |a: i64, b: i64| a < b),
        _ => return None,
    };
    let width = match Class::of(scalar) {
        Class::Double => Width::Double,
        _ => Width::Word,
    };
    let is_signed = matches!(scalar, T::S32 | T::S64);
    let test = match equality {
        true => Test::Equal(width),
        false => Test::Less { width, is_signed },
    };
    Some(Relation {
        execute,
        meaning: Some(Meaning::Compare(test)),
        exchanged,
        inverted,
    })
}

#[allow(
    clippy::double_comparisons,
    reason = "NaN is neither less nor greater, but it differs"
)]
fn float_relation(isa: Isa, operator: &str, scalar: ScalarType) -> Option<Relation> {
    // The unordered forms are the opposites of ordered ones.
    let (basic, exchanged, inverted) = match operator {
        "eq" => ("eq", false, false),
        "neu" => ("eq", false, true),
        "ne" => ("ne", false, false),
        "equ" => ("ne", false, true),
        "lt" => ("lt", false, false),
        "geu" => ("lt", false, true),
        "gt" => ("lt", true, false),
        "leu" => ("lt", true, true),
        "le" => ("le", false, false),
        "gtu" => ("le", false, true),
        "ge" => ("le", true, false),
        "ltu" => ("le", true, true),
        "nan" => ("nan", false, false),
        "num" => ("nan", false, true),
        _ => return None,
    };
    macro_rules! relations {
        ($float:ty) => {
            match basic {
                "eq" => compare(isa, |a: $float, b: $float| a == b),
                "ne" => compare(isa, |a: $float, b: $float| a < b || a > b),
                "lt" => compare(isa, |a: $float, b: $float| a < b),
                "le" => compare(isa, |a: $float, b: $float| a <= b),
                _ => compare(isa, |a: $float, b: $float| a.is_nan() || b.is_nan()),
            }
        };
    }
    let (execute, width) = if scalar == T::F32 {
        (relations!(f32), Width::Word)
    } else {
        (relations!(f64), Width::Double)
    };
    // Intel SDM volume 2, "CMPPS", table of comparison predicates: those that signal nothing.
    let predicate = match basic {
        "eq" => 0x00,
        "ne" => 0x0c,
        "lt" => 0x11,
        "le" => 0x12,
        _ => 0x03,
    };
    Some(Relation {
        execute,
        meaning: Some(Meaning::Compare(Test::Float { width, predicate })),
        exchanged,
        inverted,
    })
}

/// What must be done to operands before they are compared as words or floats, and as what they are
/// then compared.
fn preparation(isa: Isa, scalar: ScalarType, ftz: bool) -> (Option<Exec>, ScalarType) {
    let rare = Isa::Baseline;
    match scalar {
        T::U16 | T::B16 => (Some(unary(rare, |a: u16| u32::from(a))), T::U32),
        T::S16 => (Some(unary(rare, |a: i16| i32::from(a))), T::S32),
        T::F16 => (Some(unary(rare, |a: u16| Half::F16.widen(a))), T::F32),
        T::BF16 => (Some(unary(rare, |a: u16| Half::BF16.widen(a))), T::F32),
        T::F32 if ftz => (Some(unary(isa, float32::flush)), T::F32),
        other => (None, other),
    }
}

/// What `setp` and `set` have in common.
#[derive(Clone, Copy)]
struct Comparison {
    relation: Relation,
    prepare: Option<Exec>,
    combine: Combine,
}

fn parse(cx: &Lowering<'_, '_>, form: &mut Form<'_>, scalar: ScalarType) -> Result<Comparison> {
    let isa = cx.program.isa;
    let ftz = form.flag("ftz");
    let combine = form.find(Combine::from_modifier);
    let (prepare, compared) = preparation(isa, scalar, ftz);
    let relation = form.find(|operator| relation(isa, operator, compared));
    Ok(Comparison {
        relation: relation.ok_or_else(|| form.unsupported())?,
        prepare,
        combine: combine.unwrap_or(Combine::Nothing),
    })
}

/// Emits a comparison of `a` and `b` that gives `truths`: the outcome, and that of the opposite.
fn emit(
    cx: &mut Lowering<'_, '_>,
    comparison: &Comparison,
    truths: [Slot; 2],
    [mut a, mut b]: [Slot; 2],
    other: Option<Guard>,
) -> Result {
    if let Some(prepare) = comparison.prepare {
        for slot in [&mut a, &mut b] {
            let prepared = cx.scratch(Class::Word)?;
            cx.compute(prepare, prepared, &[*slot])?;
            *slot = prepared;
        }
    }
    let relation = comparison.relation;
    if relation.exchanged {
        (a, b) = (b, a);
    }
    let mut imm = comparison.combine as u64;
    if other.is_some_and(|o| o.invert != 0) {
        imm |= INVERT;
    }
    if relation.inverted {
        imm |= INVERT_OUTCOME;
    }
    cx.push(Op {
        dst: truths[0],
        dst2: truths[1],
        a,
        b,
        c: other.map_or(Slot::default(), |o| o.slot),
        imm,
        meaning: relation.meaning,
        ..cx.op(Action::Lanes(relation.execute))
    })
}

/// The operands of a comparison: the destination, two values, and the predicate to combine with.
fn operands<'a>(
    cx: &mut Lowering<'_, '_>,
    form: &Form<'a>,
    combine: Combine,
    scalar: ScalarType,
) -> Result<(&'a Operand, [Slot; 2], Option<Guard>)> {
    form.done()?;
    let (d, a, b, other) = match (form.instruction.operands.as_slice(), combine) {
        ([d, a, b], Combine::Nothing) => (d, a, b, None),
        (_, Combine::Nothing) => return Err(form.refuse("takes 3 operands")),
        ([d, a, b, other], _) => (d, a, b, Some(other)),
        _ => return Err(form.refuse("takes 4 operands")),
    };
    let values = cx.sources([a, b], [scalar; 2])?;
    let other = other.map(|other| cx.predicate(other)).transpose()?;
    Ok((d, values, other))
}

/// `setp`
pub(super) fn set_predicate(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let scalar = form.scalar()?;
    if matches!(scalar, T::F16x2 | T::BF16x2) {
        return set_predicates_of_pair(cx, form, scalar);
    }
    let comparison = parse(cx, &mut form, scalar)?;
    let (destination, values, other) = operands(cx, &form, comparison.combine, scalar)?;
    let (p, q) = destination.pair();
    let truths = [cx.destination(p, T::Pred)?, cx.destination(q, T::Pred)?];
    emit(cx, &comparison, truths, values, other)
}

/// `setp.f16x2`: the lower halves give the first predicate, the upper ones the second.
fn set_predicates_of_pair(
    cx: &mut Lowering<'_, '_>,
    mut form: Form<'_>,
    scalar: ScalarType,
) -> Result {
    let half = if scalar == T::F16x2 { T::F16 } else { T::BF16 };
    let comparison = parse(cx, &mut form, half)?;
    let (destination, [a, b], other) = operands(cx, &form, comparison.combine, scalar)?;
    let (p, q) = destination.pair();
    let upper = unary(cx.program.isa, |a: u32| a >> 16);
    let (upper_a, upper_b) = (cx.scratch(Class::Word)?, cx.scratch(Class::Word)?);
    cx.compute(upper, upper_a, &[a])?;
    cx.compute(upper, upper_b, &[b])?;
    let (p, q) = (cx.destination(p, T::Pred)?, cx.destination(q, T::Pred)?);
    // The first result must not disturb the predicate that both combine with.
    let first = cx.scratch(Class::Predicate)?;
    let unwanted = cx.scratch(Class::Predicate)?;
    emit(cx, &comparison, [first, unwanted], [a, b], other)?;
    emit(cx, &comparison, [q, unwanted], [upper_a, upper_b], other)?;
    cx.compute(crate::exec::predicate::copy, p, &[first])
}

/// `set`: the outcome as a number
pub(super) fn set(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let to = form.scalar()?;
    let scalar = form.scalar()?;
    let comparison = parse(cx, &mut form, scalar)?;
    let (destination, values, other) = operands(cx, &form, comparison.combine, scalar)?;
    let truth = match to {
        T::U32 | T::S32 | T::U16 | T::S16 => u64::from(u32::MAX),
        T::F32 => u64::from(1.0_f32.to_bits()),
        T::F16 => u64::from(Half::F16.nearest(1.0)),
        T::BF16 => u64::from(Half::BF16.nearest(1.0)),
        _ => return Err(form.unsupported()),
    };
    let holds = cx.scratch(Class::Predicate)?;
    let opposite = cx.scratch(Class::Predicate)?;
    emit(cx, &comparison, [holds, opposite], values, other)?;
    let yes = cx.constant(truth, Class::Word)?;
    let no = cx.constant(0, Class::Word)?;
    let dst = cx.destination(destination, to)?;
    cx.compute(select_lanes::<u32>(cx.program.isa), dst, &[yes, no, holds])
}

/// `selp`
pub(super) fn select(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let scalar = form.scalar()?;
    let [d, a, b, p] = form.operands()?;
    let (execute, width) = match Class::of(scalar) {
        Class::Word => (select_lanes::<u32>(cx.program.isa), Width::Word),
        Class::Double => (select_lanes::<u64>(cx.program.isa), Width::Double),
        _ => return Err(form.unsupported()),
    };
    let [a, b] = cx.sources([a, b], [scalar; 2])?;
    let p = cx.predicate(p)?;
    let dst = cx.destination(d, scalar)?;
    let execute = (execute, u64::from(p.invert));
    cx.compute_as(Some(Meaning::Select(width)), execute, dst, &[a, b, p.slot])
}

/// `slct`
pub(super) fn select_by_sign(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = Isa::Baseline;
    let ftz = form.flag("ftz");
    let (scalar, by) = (form.scalar()?, form.scalar()?);
    // Negative zero is not below zero; a subnormal number that is flushed counts as zero.
    macro_rules! choose {
        ($value:ty, |$c:ident: $by:ty| $first:expr) => {
            ternary(
                isa,
                |a: $value, b: $value, $c: $by| if $first { a } else { b },
            )
        };
    }
    let execute = match (Class::of(scalar), by) {
        (Class::Word, T::S32) => choose!(u32, |c: i32| c >= 0),
        (Class::Word, T::F32) if ftz => choose!(u32, |c: f32| float32::flush(c) >= 0.0),
        (Class::Word, T::F32) => choose!(u32, |c: f32| c >= 0.0),
        (Class::Double, T::S32) => choose!(u64, |c: i32| c >= 0),
        (Class::Double, T::F32) if ftz => choose!(u64, |c: f32| float32::flush(c) >= 0.0),
        (Class::Double, T::F32) => choose!(u64, |c: f32| c >= 0.0),
        _ => return Err(form.unsupported()),
    };
    cx.simple(&form, [scalar, scalar, scalar, by], execute, 0)
}

/// `testp`
pub(super) fn test_property(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = Isa::Baseline;
    use Property as P;
    let property = form.find(P::from_modifier);
    let property = property.ok_or_else(|| form.unsupported())?;
    let scalar = form.scalar_of(&[T::F32, T::F64])?;
    macro_rules! tests {
        ($type:ty, $test:path) => {
            match property {
                P::Finite => compare(isa, |a: $type, _b: $type| $test(P::Finite, a)),
                P::Infinite => compare(isa, |a: $type, _b: $type| $test(P::Infinite, a)),
                P::Number => compare(isa, |a: $type, _b: $type| $test(P::Number, a)),
                P::NotANumber => compare(isa, |a: $type, _b: $type| $test(P::NotANumber, a)),
                P::Normal => compare(isa, |a: $type, _b: $type| $test(P::Normal, a)),
                P::Subnormal => compare(isa, |a: $type, _b: $type| $test(P::Subnormal, a)),
            }
        };
    }
    let execute = match scalar {
        T::F32 => tests!(f32, testp_f32),
        _ => tests!(f64, testp_f64),
    };
    let [d, a] = form.operands()?;
    let a = cx.source(a, scalar)?;
    let truths = [cx.destination(d, T::Pred)?, cx.scratch(Class::Predicate)?];
    cx.compare(execute, truths, [a, a])
}
