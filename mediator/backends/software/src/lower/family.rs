//! Families of types that compute alike.

use crate::ptx::ast::ScalarType;

/// Families of types that compute alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Integer,
    Float,
    Half,
}

/// Returns the family of a type; `None` for bits and predicates, which have no arithmetic.
pub(super) fn family(scalar: ScalarType) -> Option<Family> {
    use ScalarType as T;
    Some(match scalar {
        T::S8 | T::S16 | T::S32 | T::S64 | T::U8 | T::U16 | T::U32 | T::U64 => Family::Integer,
        T::F32 | T::F64 => Family::Float,
        T::F16 | T::F16x2 | T::BF16 | T::BF16x2 => Family::Half,
        _ => return None,
    })
}
