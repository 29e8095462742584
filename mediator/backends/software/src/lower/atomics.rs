//! `atom` and `red` (PTX ISA, "Parallel Synchronization and Communication Instructions").

use super::addresses::{Address, is_hint, space_of};
use super::form::Form;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::arith::float16::{Half, pair2};
use crate::exec::access::space;
use crate::exec::atomic as lanes;
use crate::exec::atomic::NO_RESULT;
use crate::program::{Exec, Op};
use crate::ptx::ast::{Operand, ScalarType};
use ScalarType as T;

/// `atom`
pub(super) fn with_result(cx: &mut Lowering<'_, '_>, form: Form<'_>) -> Result {
    let [destination, rest @ ..] = form.instruction.operands.as_slice() else {
        return Err(form.refuse("has no operands"));
    };
    operation(cx, form, Some(destination), rest)
}

/// `red`
pub(super) fn without_result(cx: &mut Lowering<'_, '_>, form: Form<'_>) -> Result {
    let rest = form.instruction.operands.as_slice();
    operation(cx, form, None, rest)
}

const OPERATIONS: [&str; 10] = [
    "add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas",
];

fn operation(
    cx: &mut Lowering<'_, '_>,
    mut form: Form<'_>,
    destination: Option<&Operand>,
    operands: &[Operand],
) -> Result {
    let at = space_of(&mut form);
    let name = form.one_of(&OPERATIONS);
    form.discard(is_hint);
    let scalar = form.scalar()?;
    form.done()?;
    let execute = name.and_then(|name| function(name, scalar));
    let execute = execute.ok_or_else(|| form.unsupported())?;
    let (address, b, c) = match (operands, name) {
        ([address, b, c], Some("cas")) => (address, b, c),
        ([address, b], Some(name)) if name != "cas" => (address, b, b),
        _ => return Err(form.refuse("has the wrong number of operands")),
    };
    let address = cx.address(address, at)?;
    let (b, c) = (cx.source(b, scalar)?, cx.source(c, scalar)?);
    let dst = match destination {
        None | Some(Operand::Sink) => NO_RESULT,
        Some(operand) => cx.destination(operand, scalar)?,
    };
    let Address::Memory(memory) = address else {
        return Err(form.refuse("cannot change a parameter"));
    };
    if !matches!(memory.space, space::GLOBAL | space::SHARED | space::GENERIC) {
        return Err(form.refuse("is for global and shared memory only"));
    }
    cx.push(Op {
        dst,
        dst2: c,
        b,
        ..cx.access(memory, scalar.bytes(), execute)
    })
}

fn function(name: &str, scalar: ScalarType) -> Option<Exec> {
    match scalar {
        T::U32 | T::S32 | T::B32 => word(name, scalar == T::S32),
        T::U64 | T::S64 | T::B64 => double(name, scalar == T::S64),
        T::F32 | T::F64 => float(name, scalar),
        T::F16 | T::BF16 | T::F16x2 | T::BF16x2 => half(name, scalar),
        T::B16 if name == "cas" => Some(lanes::<u16, u32, _>(|old, expected, new| {
            if old == expected & 0xffff {
                new & 0xffff
            } else {
                old
            }
        })),
        T::B16 if name == "exch" => Some(lanes::<u16, u32, _>(|_old, new, _| new & 0xffff)),
        _ => None,
    }
}

/// The operations that exist for 32 and 64 bits.
macro_rules! integers {
    ($function:ident, $word:ty) => {
        fn $function(name: &str, signed: bool) -> Option<Exec> {
            Some(match name {
                "add" => lanes::<$word, $word, _>(|old, b, _| old.wrapping_add(b)),
                "min" if signed => lanes::<$word, $word, _>(|old, b, _| {
                    old.cast_signed().min(b.cast_signed()).cast_unsigned()
                }),
                "max" if signed => lanes::<$word, $word, _>(|old, b, _| {
                    old.cast_signed().max(b.cast_signed()).cast_unsigned()
                }),
                "min" => lanes::<$word, $word, _>(|old, b, _| old.min(b)),
                "max" => lanes::<$word, $word, _>(|old, b, _| old.max(b)),
                "and" => lanes::<$word, $word, _>(|old, b, _| old & b),
                "or" => lanes::<$word, $word, _>(|old, b, _| old | b),
                "xor" => lanes::<$word, $word, _>(|old, b, _| old ^ b),
                "exch" => lanes::<$word, $word, _>(|_old, b, _| b),
                "cas" => lanes::<$word, $word, _>(|old, b, c| if old == b { c } else { old }),
                // For 32 bits only.
                "inc" if <$word>::BITS == 32 => {
                    lanes::<$word, $word, _>(|old, b, _| if old >= b { 0 } else { old + 1 })
                }
                "dec" if <$word>::BITS == 32 => {
                    lanes::<$word, $word, _>(
                        |old, b, _| {
                            if old == 0 || old > b { b } else { old - 1 }
                        },
                    )
                }
                _ => return None,
            })
        }
    };
}

integers!(word, u32);
integers!(double, u64);

fn float(name: &str, scalar: ScalarType) -> Option<Exec> {
    match (name, scalar) {
        ("add", T::F32) => Some(lanes::<u32, u32, _>(|old, b, _| {
            (f32::from_bits(old) + f32::from_bits(b)).to_bits()
        })),
        ("add", _) => Some(lanes::<u64, u64, _>(|old, b, _| {
            (f64::from_bits(old) + f64::from_bits(b)).to_bits()
        })),
        ("exch", T::F32) => word(name, false),
        ("exch", _) => double(name, false),
        _ => None,
    }
}

/// An operation for each of the four half types.
macro_rules! halves {
    ($scalar:expr, $operation:ident) => {
        match $scalar {
            T::F16 => halves!(@ F16, $operation),
            T::BF16 => halves!(@ BF16, $operation),
            T::F16x2 => halves!(@@ F16, $operation),
            _ => halves!(@@ BF16, $operation),
        }
    };
    (@ $half:ident, $operation:ident) => {
        lanes::<u16, u32, _>(|old, b, _| u32::from(Half::$half.$operation(old as u16, b as u16)))
    };
    (@@ $half:ident, $operation:ident) => {
        lanes::<u32, u32, _>(|old, b, _| pair2(old, b, |x, y| Half::$half.$operation(x, y)))
    };
}

fn half(name: &str, scalar: ScalarType) -> Option<Exec> {
    Some(match name {
        "add" => halves!(scalar, add),
        "min" => halves!(scalar, min),
        "max" => halves!(scalar, max),
        _ => return None,
    })
}
