//! PTX as text: from bytes to a syntax tree. What instructions mean is decided when they are lowered.
pub mod ast;
