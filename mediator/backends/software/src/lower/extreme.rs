//! `min` and `max` of `.f32` and `.f64`.

use super::float::{Way, flushing, mode};
use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::arith::{compare as extremes, float32};
use crate::exec::binary;
use crate::isa::Isa;
use crate::program::Exec;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// `min`, `max`, of two or three operands
pub(super) fn extreme(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (nan, xorsign) = (form.flag("NaN"), form.flag("xorsign"));
    if xorsign && !form.flag("abs") {
        return Err(form.unsupported());
    }
    let mode = mode(&mut form)?;
    let min = form.instruction.opcode == "min";
    let isa = cx.program.isa;
    let execute = match mode.scalar {
        T::F32 if xorsign => extreme_xorsign(min, nan),
        T::F32 => extreme_f32(isa, mode.ftz, min, nan),
        _ if nan || xorsign || mode.ftz => return Err(form.unsupported()),
        _ if min => binary(isa, extremes::min_f64),
        _ => binary(isa, extremes::max_f64),
    };
    if form.instruction.operands.len() != 4 {
        return cx.float::<3>(&form, &mode, Way::Whole(execute));
    }
    let [d, a, b, c] = form.operands()?;
    let (a, b) = (cx.source(a, mode.scalar)?, cx.source(b, mode.scalar)?);
    let c = cx.source(c, mode.scalar)?;
    let middle = cx.scratch(Class::of(mode.scalar))?;
    cx.compute(execute, middle, &[a, b])?;
    let dst = cx.destination(d, mode.scalar)?;
    cx.compute(execute, dst, &[middle, c])
}

fn extreme_f32(isa: Isa, ftz: bool, min: bool, nan: bool) -> Exec {
    match (min, nan) {
        (true, false) => flushing!(isa, ftz; binary |a, b| extremes::min_f32(a, b)),
        (false, false) => flushing!(isa, ftz; binary |a, b| extremes::max_f32(a, b)),
        (true, true) => flushing!(isa, ftz; binary |a, b| extremes::min_nan_f32(a, b)),
        (false, true) => flushing!(isa, ftz; binary |a, b| extremes::max_nan_f32(a, b)),
    }
}

fn extreme_xorsign(min: bool, nan: bool) -> Exec {
    match (min, nan) {
        (true, false) => binary(Isa::Baseline, |a, b| extremes::min_xorsign_f32(a, b, false)),
        (false, false) => binary(Isa::Baseline, |a, b| extremes::max_xorsign_f32(a, b, false)),
        (true, true) => binary(Isa::Baseline, |a, b| extremes::min_xorsign_f32(a, b, true)),
        (false, true) => binary(Isa::Baseline, |a, b| extremes::max_xorsign_f32(a, b, true)),
    }
}
