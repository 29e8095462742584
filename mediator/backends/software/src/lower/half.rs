//! `.f16`, `.bf16` and their pairs (PTX ISA, "Half Precision Floating-Point Instructions").

use super::family::{Family, family};
use super::float;
use super::form::Form;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::arith::approximate as approx;
use crate::arith::float16::{Half, pair1, pair2, pair3};
use crate::exec::{binary, ternary, unary};
use crate::isa::Isa;
use crate::program::Exec;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// The same function of one, two or three halves for each of the four types.
macro_rules! halves {
    ($isa:expr, $scalar:expr, $shape:ident, $pair:ident,
     |$H:ident, $($name:ident),+| $body:expr) => {
        match $scalar {
            T::F16 => halves!(@ F16, $isa, $shape, |$H, $($name: u16),+| $body),
            T::BF16 => halves!(@ BF16, $isa, $shape, |$H, $($name: u16),+| $body),
            T::F16x2 => halves!(@@ F16, $isa, $shape, $pair, |$H, $($name),+| $body),
            _ => halves!(@@ BF16, $isa, $shape, $pair, |$H, $($name),+| $body),
        }
    };
    (@ $half:ident, $isa:expr, $shape:ident, |$H:ident, $($name:ident: u16),+| $body:expr) => {{
        const $H: Half = Half::$half;
        $shape($isa, |$($name: u16),+| $body)
    }};
    (@@ $half:ident, $isa:expr, $shape:ident, $pair:ident,
     |$H:ident, $($name:ident),+| $body:expr) => {{
        const $H: Half = Half::$half;
        $shape($isa, |$($name: u32),+| $pair($($name,)+ |$($name: u16),+| $body))
    }};
}

/// Modifiers of these instructions.
struct Mode {
    ftz: bool,
    sat: bool,
    relu: bool,
    scalar: ScalarType,
}

fn mode(form: &mut Form<'_>) -> Result<Mode> {
    form.flag("rn");
    form.flag("approx");
    Ok(Mode {
        ftz: form.flag("ftz"),
        sat: form.flag("sat"),
        relu: form.flag("relu"),
        scalar: form.scalar()?,
    })
}

impl Lowering<'_, '_> {
    /// An instruction of halves. What `.ftz`, `.sat` and `.relu` add are operations of their own.
    fn halves<const N: usize>(&mut self, form: &Form<'_>, mode: &Mode, execute: Exec) -> Result {
        if !(mode.ftz || mode.sat || mode.relu) {
            return self.simple(form, [mode.scalar; N], execute, 0);
        }
        let isa = Isa::Baseline;
        let flush = halves!(isa, mode.scalar, unary, pair1, |H, a| H.flush(a));
        let mut after = Vec::new();
        if mode.ftz {
            after.push(flush);
        }
        if mode.sat {
            after.push(halves!(isa, mode.scalar, unary, pair1, |H, a| H.saturate(a)));
        } else if mode.relu {
            after.push(halves!(isa, mode.scalar, unary, pair1, |H, a| H.rectify(a)));
        }
        let before = mode.ftz.then_some(flush);
        self.stepwise::<N>(form, mode.scalar, (execute, 0), before, &after)
    }
}

/// `add`, `sub`, `mul`, `min`, `max`
pub(super) fn binary_operation(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let nan = form.flag("NaN");
    let mode = mode(&mut form)?;
    let (isa, scalar) = (Isa::Baseline, mode.scalar);
    let execute = match (form.instruction.opcode.as_str(), nan) {
        ("add", false) => halves!(isa, scalar, binary, pair2, |H, a, b| H.add(a, b)),
        ("sub", false) => halves!(isa, scalar, binary, pair2, |H, a, b| H.sub(a, b)),
        ("mul", false) => halves!(isa, scalar, binary, pair2, |H, a, b| H.mul(a, b)),
        ("min", false) => halves!(isa, scalar, binary, pair2, |H, a, b| H.min(a, b)),
        ("max", false) => halves!(isa, scalar, binary, pair2, |H, a, b| H.max(a, b)),
        ("min", true) => halves!(isa, scalar, binary, pair2, |H, a, b| H.min_nan(a, b)),
        ("max", true) => halves!(isa, scalar, binary, pair2, |H, a, b| H.max_nan(a, b)),
        _ => return Err(form.unsupported()),
    };
    cx.halves::<3>(&form, &mode, execute)
}

/// `fma`
pub(super) fn fused_multiply_add(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let mode = mode(&mut form)?;
    let isa = Isa::Baseline;
    let execute = halves!(isa, mode.scalar, ternary, pair3, |H, a, b, c| H
        .fma(a, b, c));
    cx.halves::<4>(&form, &mode, execute)
}

/// `abs`, `neg`
pub(super) fn sign(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let mode = mode(&mut form)?;
    let isa = Isa::Baseline;
    let execute = if form.instruction.opcode == "abs" {
        halves!(isa, mode.scalar, unary, pair1, |H, a| H.abs(a))
    } else {
        halves!(isa, mode.scalar, unary, pair1, |H, a| H.neg(a))
    };
    cx.halves::<2>(&form, &mode, execute)
}

/// `ex2`, `tanh`: of halves, or of `.f32`
pub(super) fn approximate(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let mode = mode(&mut form)?;
    let opcode = form.instruction.opcode.as_str();
    if mode.scalar == T::F32 {
        let execute = float::transcendental(cx.program.isa, opcode, mode.ftz);
        return cx.simple(&form, [T::F32; 2], execute, 0);
    }
    if family(mode.scalar) != Some(Family::Half) {
        return Err(form.unsupported());
    }
    let (isa, scalar) = (Isa::Baseline, mode.scalar);
    let execute = if opcode == "ex2" {
        halves!(isa, scalar, unary, pair1, |H, a| H
            .nearest(approx::ex2(H.widen(a))))
    } else {
        halves!(isa, scalar, unary, pair1, |H, a| H
            .nearest(approx::tanh(H.widen(a))))
    };
    cx.halves::<2>(&form, &mode, execute)
}
