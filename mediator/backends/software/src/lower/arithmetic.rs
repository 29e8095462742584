//! Arithmetic that exists for integers and floats: tells them apart by their type.

use super::family::{Family, family};
use super::form::Form;
use super::lowering::Lowering;
use super::refusal::Result;
use super::{extreme, float, half, integer};
use crate::ptx::ast::ScalarType;

macro_rules! by_family {
    ($($(#[$doc:meta])* $name:ident: $integer:path, $float:path, $half:path;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name(cx: &mut Lowering<'_, '_>, form: Form<'_>) -> Result {
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

fn unsupported(_cx: &mut Lowering<'_, '_>, form: Form<'_>) -> Result {
    Err(form.unsupported())
}

/// The first type among the modifiers.
fn type_of(form: &Form<'_>) -> Option<ScalarType> {
    let mut modifiers = form.instruction.modifiers.iter();
    modifiers.find_map(|m| ScalarType::from_modifier(m))
}
