//! Logic, shifts, and bit fields (PTX ISA, "Logic and Shift Instructions" and the bit
//! instructions).

use iced_x86::Code;

use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::arith::bits::{self as arith, Excess, Permutation};
use crate::exec::{binary, binary_with, predicate, ternary, ternary_with, unary, unary_with};
use crate::isa::Isa;
use crate::meaning::Meaning;
use crate::program::Exec;
use crate::ptx::ast::{Immediate, Operand, ScalarType};
use ScalarType as T;

/// `and`, `or`, `xor`, `not`
pub(super) fn logic(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let scalar = form.scalar()?;
    let opcode = form.instruction.opcode.as_str();
    if scalar == T::Pred {
        return predicate_logic(cx, &form);
    }
    let isa = cx.program.isa;
    macro_rules! logic {
        ($word:ty) => {
            match opcode {
                "and" => binary(isa, |a: $word, b: $word| a & b),
                "or" => binary(isa, |a: $word, b: $word| a | b),
                "xor" => binary(isa, |a: $word, b: $word| a ^ b),
                _ => {
                    let execute = unary(isa, |a: $word| !a);
                    return cx.simple(&form, [scalar; 2], execute, 0);
                }
            }
        };
    }
    let execute = match Class::of(scalar) {
        Class::Word => logic!(u32),
        Class::Double => logic!(u64),
        _ => return Err(form.unsupported()),
    };
    cx.simple(&form, [scalar; 3], execute, 0)
}

fn predicate_logic(cx: &mut Lowering<'_, '_>, form: &Form<'_>) -> Result {
    let (execute, code): (Exec, _) = match form.instruction.opcode.as_str() {
        "and" => (predicate::and, Code::And_r32_rm32),
        "or" => (predicate::or, Code::Or_r32_rm32),
        "xor" => (predicate::xor, Code::Xor_r32_rm32),
        _ => {
            let [d, a] = form.operands()?;
            let a = cx.plain_predicate(a)?;
            let dst = cx.destination(d, T::Pred)?;
            let meaning = Meaning::Predicate {
                combine: None,
                not: true,
            };
            return cx.compute_as(Some(meaning), (predicate::not, 0), dst, &[a]);
        }
    };
    let [d, a, b] = form.operands()?;
    let (a, b) = (cx.plain_predicate(a)?, cx.plain_predicate(b)?);
    let dst = cx.destination(d, T::Pred)?;
    let meaning = Meaning::Predicate {
        combine: Some(code),
        not: false,
    };
    cx.compute_as(Some(meaning), (execute, 0), dst, &[a, b])
}

/// `cnot`
pub(super) fn logical_not(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, scalar) = (Isa::Baseline, form.scalar()?);
    let execute = match scalar {
        T::B16 => unary(isa, |a: u16| u16::from(a == 0)),
        T::B32 => unary(isa, |a: u32| u32::from(a == 0)),
        T::B64 => unary(isa, |a: u64| u64::from(a == 0)),
        _ => return Err(form.unsupported()),
    };
    cx.simple(&form, [scalar; 2], execute, 0)
}

/// `lop3`; the table is an immediate.
pub(super) fn three_inputs(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let scalar = form.scalar_of(&[T::B32])?;
    let [d, a, b, c, table] = form.operands()?;
    let Operand::Immediate(Immediate::Integer(table)) = table else {
        return Err(form.refuse("takes a number as its lookup table"));
    };
    let [a, b, c] = cx.sources([a, b, c], [scalar, scalar, scalar])?;
    let dst = cx.destination(d, scalar)?;
    cx.compute_with(
        lookup(cx.program.isa, *table as u8),
        dst,
        &[a, b, c],
        (*table & 0xff) as u64,
    )
}

/// The tables that compilers use most have functions of their own.
fn lookup(isa: Isa, table: u8) -> Exec {
    match table {
        0x96 => ternary(isa, |a: u32, b: u32, c: u32| a ^ b ^ c),
        0xe8 => ternary(isa, |a: u32, b: u32, c: u32| (a & b) | (a & c) | (b & c)),
        0xca => ternary(isa, |a: u32, b: u32, c: u32| (a & b) | (!a & c)),
        _ => ternary_with(isa, |a: u32, b: u32, c: u32, table| {
            arith::lop3(a, b, c, table as u8)
        }),
    }
}

/// `shl`, `shr`
pub(super) fn shift(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, scalar) = (cx.program.isa, form.scalar()?);
    let left = form.instruction.opcode == "shl";
    let execute = match (left, scalar) {
        (true, T::B16 | T::U16 | T::S16) => {
            binary(isa, |a: u16, b: u32| arith::shl_b32(a.into(), b) as u16)
        }
        (true, T::B32 | T::U32 | T::S32) => binary(isa, arith::shl_b32),
        (true, T::B64 | T::U64 | T::S64) => binary(isa, arith::shl_b64),
        (false, T::B16 | T::U16) => binary(isa, |a: u16, b: u32| a.checked_shr(b).unwrap_or(0)),
        (false, T::S16) => binary(isa, |a: i16, b: u32| a >> b.min(15)),
        (false, T::B32 | T::U32) => binary(isa, arith::shr_u32),
        (false, T::S32) => binary(isa, arith::shr_s32),
        (false, T::B64 | T::U64) => binary(isa, arith::shr_u64),
        (false, T::S64) => binary(isa, arith::shr_s64),
        _ => return Err(form.unsupported()),
    };
    cx.simple(&form, [scalar, scalar, T::U32], execute, 0)
}

/// `shf`
pub(super) fn funnel_shift(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = cx.program.isa;
    let left = form.one_of(&["l", "r"]) == Some("l");
    let excess = excess(&mut form);
    let scalar = form.scalar_of(&[T::B32])?;
    let execute = match (left, excess) {
        (true, Excess::Wrap) => ternary(isa, |a, b, c| arith::shf_l(a, b, c, Excess::Wrap)),
        (true, Excess::Clamp) => ternary(isa, |a, b, c| arith::shf_l(a, b, c, Excess::Clamp)),
        (false, Excess::Wrap) => ternary(isa, |a, b, c| arith::shf_r(a, b, c, Excess::Wrap)),
        (false, Excess::Clamp) => ternary(isa, |a, b, c| arith::shf_r(a, b, c, Excess::Clamp)),
    };
    cx.simple(&form, [scalar; 4], execute, 0)
}

fn excess(form: &mut Form<'_>) -> Excess {
    let named = form.find(Excess::from_modifier);
    named.unwrap_or(Excess::Clamp)
}

/// What [`excess`] gave, in an immediate.
fn excess_in(imm: u64) -> Excess {
    Excess::ALL[imm as usize & 1]
}

/// `prmt`
pub(super) fn permute(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    // Compilers use the first mode, others hardly ever.
    let isa = cx.program.isa;
    use Permutation as P;
    let mode = form.find(P::from_modifier).unwrap_or(P::Selectors);
    let scalar = form.scalar_of(&[T::B32])?;
    let execute = match mode {
        P::Selectors => ternary(isa, |a, b, c| arith::prmt(a, b, c, P::Selectors)),
        _ => ternary_with(Isa::Baseline, |a, b, c, mode| {
            arith::prmt(a, b, c, P::ALL[mode as usize % P::ALL.len()])
        }),
    };
    cx.simple(&form, [scalar; 4], execute, mode as u64)
}

/// `bfe`
pub(super) fn extract(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, scalar) = (Isa::Baseline, form.scalar()?);
    let execute = match scalar {
        T::U32 => ternary(isa, arith::bfe_u32),
        T::S32 => ternary(isa, arith::bfe_s32),
        T::U64 => ternary(isa, arith::bfe_u64),
        T::S64 => ternary(isa, arith::bfe_s64),
        _ => return Err(form.unsupported()),
    };
    cx.simple(&form, [scalar, scalar, T::U32, T::U32], execute, 0)
}

/// `bfi`: four sources; the last is the second half of a pair that the position is the first half
/// of.
pub(super) fn insert(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, scalar) = (cx.program.isa, form.scalar()?);
    let [d, a, b, position, length] = form.operands()?;
    // Only the low 8 bits of either count: both fit one register.
    let both = cx.scratch(Class::Word)?;
    let (position, length) = (cx.source(position, T::U32)?, cx.source(length, T::U32)?);
    let pack = binary(isa, |p: u32, l: u32| (p & 0xff) | (l & 0xff) << 8);
    cx.compute(pack, both, &[position, length])?;
    let execute = match Class::of(scalar) {
        Class::Word => ternary(isa, |a, b, at: u32| {
            arith::bfi_b32(a, b, at & 0xff, at >> 8)
        }),
        Class::Double => ternary(isa, |a, b, at: u32| {
            arith::bfi_b64(a, b, at & 0xff, at >> 8)
        }),
        _ => return Err(form.unsupported()),
    };
    let (a, b) = (cx.source(a, scalar)?, cx.source(b, scalar)?);
    let dst = cx.destination(d, scalar)?;
    cx.compute(execute, dst, &[a, b, both])
}

/// `bfind`
pub(super) fn find_leading(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, amount, scalar) = (Isa::Baseline, form.flag("shiftamt"), form.scalar()?);
    let execute = match scalar {
        T::U32 => unary_with(isa, |a, amount| arith::bfind_u32(a, amount != 0)),
        T::S32 => unary_with(isa, |a, amount| arith::bfind_s32(a, amount != 0)),
        T::U64 => unary_with(isa, |a, amount| arith::bfind_u64(a, amount != 0)),
        T::S64 => unary_with(isa, |a, amount| arith::bfind_s64(a, amount != 0)),
        _ => return Err(form.unsupported()),
    };
    cx.simple(&form, [T::U32, scalar], execute, u64::from(amount))
}

/// `brev`, `popc`, `clz`
pub(super) fn count_or_reverse(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, scalar) = (cx.program.isa, form.scalar()?);
    let execute = match (form.instruction.opcode.as_str(), scalar) {
        ("brev", T::B32) => unary(isa, u32::reverse_bits),
        ("brev", T::B64) => unary(isa, u64::reverse_bits),
        ("popc", T::B32) => unary(isa, u32::count_ones),
        ("popc", T::B64) => unary(isa, u64::count_ones),
        ("clz", T::B32) => unary(isa, u32::leading_zeros),
        ("clz", T::B64) => unary(isa, u64::leading_zeros),
        _ => return Err(form.unsupported()),
    };
    let to = if form.instruction.opcode == "brev" {
        scalar
    } else {
        T::U32
    };
    cx.simple(&form, [to, scalar], execute, 0)
}

/// `bmsk`
pub(super) fn mask(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = Isa::Baseline;
    let excess = excess(&mut form);
    let scalar = form.scalar_of(&[T::B32])?;
    let execute = binary_with(isa, |a, b, imm| arith::bmsk(a, b, excess_in(imm)));
    cx.simple(&form, [scalar, T::U32, T::U32], execute, excess as u64)
}

/// `szext`
pub(super) fn extend(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let isa = Isa::Baseline;
    let excess = excess(&mut form);
    let scalar = form.scalar()?;
    let execute = match scalar {
        T::S32 => binary_with(isa, |a, b, imm| arith::szext(a, b, true, excess_in(imm))),
        T::U32 => binary_with(isa, |a, b, imm| arith::szext(a, b, false, excess_in(imm))),
        _ => return Err(form.unsupported()),
    };
    cx.simple(&form, [scalar, scalar, T::U32], execute, excess as u64)
}

/// `fns`
pub(super) fn find_nth(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let (isa, scalar) = (Isa::Baseline, form.scalar_of(&[T::B32])?);
    let execute = ternary(isa, arith::fns);
    cx.simple(&form, [scalar, T::U32, T::U32, T::S32], execute, 0)
}
