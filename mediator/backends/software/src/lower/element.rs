//! Loads and stores of one element: which function for which types.

use super::frame::{Class, scalar_bytes};
use crate::exec::{load as load_lanes, parameter, store as store_lanes};
use crate::isa::Isa;
use crate::program::Exec;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// The load of a type into a register of a class.
pub(super) fn load_function(isa: Isa, scalar: ScalarType, class: Class) -> Exec {
    match (scalar, class) {
        (T::U8 | T::B8 | T::Pred, Class::Double) => load_lanes::<u8, u64>(isa),
        (T::S8, Class::Double) => load_lanes::<i8, i64>(isa),
        (T::S16, Class::Double) => load_lanes::<i16, i64>(isa),
        (T::U16 | T::B16 | T::F16 | T::BF16, Class::Double) => load_lanes::<u16, u64>(isa),
        (T::S32, Class::Double) => load_lanes::<i32, i64>(isa),
        (T::U32 | T::B32 | T::F32 | T::F16x2 | T::BF16x2, Class::Double) => {
            load_lanes::<u32, u64>(isa)
        }
        (_, Class::Double) => load_lanes::<u64, u64>(isa),
        (T::U8 | T::B8 | T::Pred, _) => load_lanes::<u8, u32>(isa),
        (T::S8, _) => load_lanes::<i8, i32>(isa),
        (T::S16, _) => load_lanes::<i16, i32>(isa),
        (T::U16 | T::B16 | T::F16 | T::BF16, _) => load_lanes::<u16, u32>(isa),
        _ => load_lanes::<u32, u32>(isa),
    }
}

/// The load of a kernel parameter into a register of a class.
pub(super) fn parameter_function(scalar: ScalarType, class: Class) -> Exec {
    match (scalar, class) {
        (T::U8 | T::B8 | T::Pred, Class::Double) => parameter::<u8, u64>(),
        (T::S8, Class::Double) => parameter::<i8, i64>(),
        (T::S16, Class::Double) => parameter::<i16, i64>(),
        (T::U16 | T::B16 | T::F16 | T::BF16, Class::Double) => parameter::<u16, u64>(),
        (T::S32, Class::Double) => parameter::<i32, i64>(),
        (T::U32 | T::B32 | T::F32 | T::F16x2 | T::BF16x2, Class::Double) => parameter::<u32, u64>(),
        (_, Class::Double) => parameter::<u64, u64>(),
        (T::U8 | T::B8 | T::Pred, _) => parameter::<u8, u32>(),
        (T::S8, _) => parameter::<i8, i32>(),
        (T::S16, _) => parameter::<i16, i32>(),
        (T::U16 | T::B16 | T::F16 | T::BF16, _) => parameter::<u16, u32>(),
        _ => parameter::<u32, u32>(),
    }
}

/// The store of a type from a register of a class.
pub(super) fn store_function(isa: Isa, scalar: ScalarType, class: Class) -> Exec {
    match (scalar_bytes(scalar), class) {
        (1, Class::Double) => store_lanes::<u64, u8>(isa),
        (2, Class::Double) => store_lanes::<u64, u16>(isa),
        (4, Class::Double) => store_lanes::<u64, u32>(isa),
        (_, Class::Double) => store_lanes::<u64, u64>(isa),
        (1, _) => store_lanes::<u32, u8>(isa),
        (2, _) => store_lanes::<u32, u16>(isa),
        _ => store_lanes::<u32, u32>(isa),
    }
}
