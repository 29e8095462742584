//! Arithmetic that exists for integers and floats: tells them apart by their type.

use super::Refusal;
use super::form::Form;
use super::function::Lowering;
use super::{extreme, float, half, integer};
use crate::program::{Action, Exec, Op};
use crate::ptx::ast::ScalarType;

/// Families of types that compute alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Integer,
    Float,
    Half,
}

/// The family of a type; `None` for bits and predicates, which do not compute.
pub(super) fn family(scalar: ScalarType) -> Option<Family> {
    use ScalarType as T;
    Some(match scalar {
        T::S8 | T::S16 | T::S32 | T::S64 | T::U8 | T::U16 | T::U32 | T::U64 => Family::Integer,
        T::F32 | T::F64 => Family::Float,
        T::F16 | T::F16x2 | T::BF16 | T::BF16x2 => Family::Half,
        _ => return None,
    })
}

impl Lowering<'_, '_> {
    /// An instruction with a destination and `N - 1` sources, all of the types given, as one operation.
    pub(super) fn simple<const N: usize>(
        &mut self,
        form: &Form<'_>,
        types: [ScalarType; N],
        execute: Exec,
        imm: u64,
    ) -> Result<(), Refusal> {
        let operands = form.operands::<N>()?;
        let mut sources = [Default::default(); 3];
        for index in 1..N {
            sources[index - 1] = self.source(&operands[index], types[index])?;
        }
        let dst = self.destination(&operands[0], types[0])?;
        let [a, b, c] = sources;
        let op = Op {
            dst,
            a,
            b,
            c,
            imm,
            ..self.op(Action::Lanes(execute))
        };
        self.push(op)
    }
}

macro_rules! by_family {
    ($($(#[$doc:meta])* $name:ident: $integer:path, $float:path, $half:path;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name(cx: &mut Lowering<'_, '_>, form: Form<'_>) -> Result<(), Refusal> {
            match type_of(&form).and_then(family) {
                Some(Family::Integer) => $integer(cx, form),
                Some(Family::Float) => $float(cx, form),
                Some(Family::Half) => $half(cx, form),
                None => Err(form.unsupported()),
            }
        }
    )*};
}

by_family! {
    /// `add`, `sub`
    add_or_sub: integer::add_or_sub, float::add_or_sub, half::binary_operation;
    /// `mul`
    multiply: integer::multiply, float::multiply, half::binary_operation;
    /// `mad`
    multiply_add: integer::multiply_add, float::multiply_add, unsupported;
    /// `fma`
    fused_multiply_add: unsupported, float::multiply_add, half::fused_multiply_add;
    /// `div`
    divide: integer::divide, float::divide, unsupported;
    /// `abs`, `neg`
    sign: integer::sign, float::sign, half::sign;
    /// `min`, `max`
    extreme: integer::extreme, extreme::extreme, half::binary_operation;
}

fn unsupported(_cx: &mut Lowering<'_, '_>, form: Form<'_>) -> Result<(), Refusal> {
    Err(form.unsupported())
}

/// The first type among the modifiers.
fn type_of(form: &Form<'_>) -> Option<ScalarType> {
    let mut modifiers = form.instruction.modifiers.iter();
    modifiers.find_map(|m| super::form::scalar_type(m))
}
