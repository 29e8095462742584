//! The software back end.
pub mod arith;
pub mod ptx;
