//! `.f32` and `.f64` arithmetic (PTX ISA, "Floating-Point Instructions").

use super::form::Form;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::arith::{Rounding, approximate as approx, float32, float64};
use crate::exec::{binary, binary_with, ternary, ternary_with, unary, unary_with};
use crate::isa::Isa;
use crate::program::Exec;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// A lane function of `.f32` whose operands and result are flushed if `$ftz` (`.ftz`): compiled for
/// both.
macro_rules! flushing {
    ($isa:expr, $ftz:expr; $shape:ident |$($name:ident),+| $value:expr) => {
        if $ftz {
            $shape($isa, |$($name: f32),+| {
                $(let $name = float32::flush($name);)+
                float32::flush($value)
            })
        } else {
            $shape($isa, |$($name: f32),+| $value)
        }
    };
}
pub(super) use flushing;

/// Modifiers that most of these instructions have: what `.rn`, `.ftz` and the like ask for.
pub(super) struct Mode {
    rounding: Rounding,
    pub(super) ftz: bool,
    sat: bool,
    pub(super) scalar: ScalarType,
}

/// Takes the modifiers; refuses types that are not `.f32` or `.f64`.
pub(super) fn mode(form: &mut Form<'_>) -> Result<Mode> {
    let mode = Mode {
        rounding: form.rounding().unwrap_or(Rounding::Nearest),
        ftz: form.flag("ftz"),
        sat: form.flag("sat"),
        scalar: form.scalar()?,
    };
    match mode.scalar {
        T::F32 | T::F64 => Ok(mode),
        _ => Err(form.unsupported()),
    }
}

/// How an instruction is executed: by one operation, or, if it is rare, by several.
pub(super) enum Way {
    /// One operation that does all that the mode asks for, but `.sat`.
    Whole(Exec),
    /// A lane function that takes the rounding mode as its immediate; flushing is done around it.
    Rounded(Exec),
}

impl Lowering<'_, '_> {
    /// Lowers an instruction whose operands are all of one type.
    pub(super) fn float<const N: usize>(
        &mut self,
        form: &Form<'_>,
        mode: &Mode,
        way: Way,
    ) -> Result {
        let (execute, around) = match way {
            Way::Whole(execute) => (execute, false),
            Way::Rounded(execute) => (execute, mode.ftz),
        };
        let imm = mode.rounding as u64;
        if !mode.sat && !around {
            return self.simple(form, [mode.scalar; N], execute, imm);
        }
        if mode.scalar != T::F32 {
            return Err(form.unsupported());
        }
        let isa = self.program.isa;
        let flush = unary(isa, float32::flush);
        let saturate = unary(isa, float32::saturate);
        let after: &[Exec] = match (around, mode.sat) {
            (true, true) => &[flush, saturate],
            (true, false) => &[flush],
            _ => &[saturate],
        };
        self.stepwise::<N>(form, T::F32, (execute, imm), around.then_some(flush), after)
    }
}

/// A mode that has been stored in an immediate.
fn rounding(imm: u64) -> Rounding {
    Rounding::ALL[imm as usize & 3]
}

/// The lane functions of an instruction: to the nearest as a Rust expression, and with any rounding
/// mode as the function of this name in [`float32`] and [`float64`].
macro_rules! rounded {
    ($isa:expr, $mode:expr;
     $shape:ident $with:ident |$($name:ident),+| $nearest:expr; $any:ident) => {
        match ($mode.scalar, $mode.rounding) {
            (T::F32, Rounding::Nearest) => {
                Way::Whole(flushing!($isa, $mode.ftz; $shape |$($name),+| $nearest))
            }
            (T::F32, _) => Way::Rounded($with(Isa::Baseline, |$($name: f32,)+ imm| {
                float32::$any($($name,)+ rounding(imm))
            })),
            (_, Rounding::Nearest) => Way::Whole($shape($isa, |$($name: f64),+| $nearest)),
            _ => Way::Rounded($with(Isa::Baseline, |$($name: f64,)+ imm| {
                float64::$any($($name,)+ rounding(imm))
            })),
        }
    };
}

/// `add`, `sub`
pub(super) fn add_or_sub(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let mode = mode(&mut form)?;
    let isa = cx.program.isa;
    let way = if form.instruction.opcode == "add" {
        rounded!(isa, mode; binary binary_with |a, b| a + b; add)
    } else {
        rounded!(isa, mode; binary binary_with |a, b| a - b; sub)
    };
    cx.float::<3>(&form, &mode, way)
}

/// `mul`
pub(super) fn multiply(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let mode = mode(&mut form)?;
    let way = rounded!(cx.program.isa, mode; binary binary_with |a, b| a * b; mul);
    cx.float::<3>(&form, &mode, way)
}

/// `fma`, and `mad`, which is the same for floats
pub(super) fn multiply_add(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let mode = mode(&mut form)?;
    let way = rounded!(cx.program.isa, mode; ternary ternary_with |a, b, c| a.mul_add(b, c); fma);
    cx.float::<4>(&form, &mode, way)
}

/// `div`
pub(super) fn divide(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let kind = form.one_of(&["approx", "full"]);
    let mode = mode(&mut form)?;
    let isa = cx.program.isa;
    let way = match (kind, mode.scalar) {
        (Some("approx"), T::F32) => {
            Way::Whole(flushing!(isa, mode.ftz; binary |a, b| approx::div(a, b)))
        }
        (Some(_), T::F32) => {
            Way::Whole(flushing!(isa, mode.ftz; binary |a, b| approx::div_full(a, b)))
        }
        (None, _) => rounded!(isa, mode; binary binary_with |a, b| a / b; div),
        _ => return Err(form.unsupported()),
    };
    cx.float::<3>(&form, &mode, way)
}

/// `rcp`, `sqrt`, `rsqrt`
pub(super) fn root(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let approximate = form.flag("approx");
    let mode = mode(&mut form)?;
    let isa = cx.program.isa;
    let opcode = form.instruction.opcode.as_str();
    let way = match opcode {
        _ if approximate || opcode == "rsqrt" => {
            let execute = approximate_root(isa, opcode, &mode);
            Way::Whole(execute.ok_or_else(|| form.unsupported())?)
        }
        "rcp" => rounded!(isa, mode; unary unary_with |a| 1.0 / a; rcp),
        _ => rounded!(isa, mode; unary unary_with |a| a.sqrt(); sqrt),
    };
    cx.float::<2>(&form, &mode, way)
}

fn approximate_root(isa: Isa, opcode: &str, mode: &Mode) -> Option<Exec> {
    Some(match (opcode, mode.scalar) {
        ("rcp", T::F32) => flushing!(isa, mode.ftz; unary |a| approx::rcp(a)),
        ("sqrt", T::F32) => flushing!(isa, mode.ftz; unary |a| approx::sqrt(a)),
        ("rsqrt", T::F32) => flushing!(isa, mode.ftz; unary |a| approx::rsqrt(a)),
        ("rsqrt", T::F64) if !mode.ftz => unary(isa, approx::rsqrt_f64),
        ("rsqrt", T::F64) => unary(Isa::Baseline, approx::rsqrt_ftz_f64),
        ("rcp", T::F64) if mode.ftz => unary(Isa::Baseline, approx::rcp_ftz_f64),
        _ => return None,
    })
}

/// `sin`, `cos`, `lg2`
pub(super) fn approximate(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    form.flag("approx");
    let mode = mode(&mut form)?;
    let execute = transcendental(cx.program.isa, &form.instruction.opcode, mode.ftz)
        .filter(|_| mode.scalar == T::F32)
        .ok_or_else(|| form.unsupported())?;
    cx.float::<2>(&form, &mode, Way::Whole(execute))
}

/// Returns the lane function of an approximation; `None` if `opcode` names none.
pub(super) fn transcendental(isa: Isa, opcode: &str, ftz: bool) -> Option<Exec> {
    Some(match opcode {
        "sin" => flushing!(isa, ftz; unary |a| approx::sin(a)),
        "cos" => flushing!(isa, ftz; unary |a| approx::cos(a)),
        "lg2" => flushing!(isa, ftz; unary |a| approx::lg2(a)),
        "ex2" => flushing!(isa, ftz; unary |a| approx::ex2(a)),
        "tanh" => unary(isa, approx::tanh),
        _ => return None,
    })
}

/// `abs`, `neg`
pub(super) fn sign(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let mode = mode(&mut form)?;
    let isa = cx.program.isa;
    let execute = match (form.instruction.opcode.as_str(), mode.scalar) {
        ("abs", T::F32) => flushing!(isa, mode.ftz; unary |a| a.abs()),
        ("neg", T::F32) => flushing!(isa, mode.ftz; unary |a| -a),
        ("abs", _) => unary(isa, f64::abs),
        _ => unary(isa, |a: f64| -a),
    };
    cx.float::<2>(&form, &mode, Way::Whole(execute))
}

/// `copysign`
pub(super) fn copy_sign(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let mode = mode(&mut form)?;
    let isa = cx.program.isa;
    // PTX gives `b` the sign of `a`.
    let execute = match mode.scalar {
        T::F32 => binary(isa, |a: f32, b: f32| b.copysign(a)),
        _ => binary(isa, |a: f64, b: f64| b.copysign(a)),
    };
    cx.float::<3>(&form, &mode, Way::Whole(execute))
}
