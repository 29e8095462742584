//! Loads, stores and copies of one element: which function for which types.

use super::frame::Class;
use crate::exec::{load as load_lanes, parameter, store as store_lanes, unary};
use crate::isa::Isa;
use crate::program::Exec;
use crate::ptx::ast::ScalarType;
use ScalarType as T;

/// A function for the Rust types that an element has in memory and in a register of a class.
macro_rules! by_types {
    ($scalar:expr, $class:expr, $function:ident($($argument:expr)?)) => {
        match ($scalar, $class) {
            (T::U8 | T::B8 | T::Pred, Class::Double) => $function::<u8, u64>($($argument)?),
            (T::S8, Class::Double) => $function::<i8, i64>($($argument)?),
            (T::S16, Class::Double) => $function::<i16, i64>($($argument)?),
            (T::U16 | T::B16 | T::F16 | T::BF16, Class::Double) => {
                $function::<u16, u64>($($argument)?)
            }
            (T::S32, Class::Double) => $function::<i32, i64>($($argument)?),
            (T::U32 | T::B32 | T::F32 | T::F16x2 | T::BF16x2, Class::Double) => {
                $function::<u32, u64>($($argument)?)
            }
            (_, Class::Double) => $function::<u64, u64>($($argument)?),
            (T::U8 | T::B8 | T::Pred, _) => $function::<u8, u32>($($argument)?),
            (T::S8, _) => $function::<i8, i32>($($argument)?),
            (T::S16, _) => $function::<i16, i32>($($argument)?),
            (T::U16 | T::B16 | T::F16 | T::BF16, _) => $function::<u16, u32>($($argument)?),
            _ => $function::<u32, u32>($($argument)?),
        }
    };
}

/// Returns the load of a type into a register of a class.
pub(super) fn load_function(isa: Isa, scalar: ScalarType, class: Class) -> Exec {
    by_types!(scalar, class, load_lanes(isa))
}

/// Returns the load of a kernel parameter into a register of a class.
pub(super) fn parameter_function(scalar: ScalarType, class: Class) -> Exec {
    by_types!(scalar, class, parameter())
}

/// Returns the store of a type from a register of a class.
pub(super) fn store_function(isa: Isa, scalar: ScalarType, class: Class) -> Exec {
    match (scalar.bytes(), class) {
        (1, Class::Double) => store_lanes::<u64, u8>(isa),
        (2, Class::Double) => store_lanes::<u64, u16>(isa),
        (4, Class::Double) => store_lanes::<u64, u32>(isa),
        (_, Class::Double) => store_lanes::<u64, u64>(isa),
        (1, _) => store_lanes::<u32, u8>(isa),
        (2, _) => store_lanes::<u32, u16>(isa),
        _ => store_lanes::<u32, u32>(isa),
    }
}

/// Returns the copy of a register of a class up to 64 bits.
pub(super) fn copy_function(isa: Isa, class: Class) -> Exec {
    match class {
        Class::Double => unary(isa, |a: u64| a),
        _ => unary(isa, |a: u32| a),
    }
}
