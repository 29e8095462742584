//! The software back end.
pub mod ptx;
