//! Packed half-words and bytes (PTX ISA, "SIMD Video Instructions"). Operands with
//! selectors or masks are refused.

use super::form::Form;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::arith::video::{Ending, Packed, PackedOperation as Operation};
use crate::exec::ternary_with;
use crate::isa::Isa;
use crate::ptx::ast::ScalarType as T;

/// `vadd2`, `vadd4` and so on, and `vset2`, `vset4`
pub(super) fn packed(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let opcode = form.instruction.opcode.as_str();
    let name = opcode.trim_end_matches(['2', '4']);
    let compares = name == "vset";
    let operation = match compares {
        true => form.find(|word| Operation::from_modifier(word).filter(|it| it.compares())),
        false => Operation::from_modifier(name),
    };
    let operation = operation.ok_or_else(|| form.unsupported())?;
    let mut is_signed = || Ok(form.scalar_of(&[T::U32, T::S32])? == T::S32);
    // Results of comparisons have no type.
    let result = if compares { false } else { is_signed()? };
    let signed = [is_signed()?, is_signed()?, result];
    let ending = form.find(Ending::from_modifier).unwrap_or(Ending::Truncate);
    if compares && ending == Ending::Saturate {
        return Err(form.unsupported());
    }
    let packed = Packed {
        operation,
        bytes: opcode.ends_with('4'),
        signed,
        ending,
    };
    let execute = ternary_with(Isa::Baseline, |a, b, c, word| {
        Packed::of(word).apply(a, b, c)
    });
    cx.simple(&form, [T::U32; 4], execute, packed.word())
}
