//! The cases: one file for each family of kernels.

mod approximate;
mod control;
mod elementwise;
mod filter;
mod integers;
mod matmul;
mod precision;
mod shared_counters;
mod warp;

use crate::case::{Buffer, Case, Role};
use crate::rule::Rule;

/// Every case. All modules are well-formed and all launches end.
pub static CASES: &[Case] = &[
    elementwise::VECTOR_ADD,
    elementwise::SAXPY,
    matmul::MATMUL_16,
    matmul::MATMUL_32,
    shared_counters::BLOCK_REDUCE,
    shared_counters::HISTOGRAM,
    warp::SHUFFLE,
    elementwise::STENCIL,
    approximate::NBODY,
    integers::HASH,
    integers::CONVERT,
    precision::HALF,
    precision::DOUBLE,
    approximate::ELEMENTARY,
    control::COLLATZ,
    control::CALLS,
    control::RECURSION,
    control::BITONIC,
    warp::VOTE,
    filter::CONSTANT,
    elementwise::VOLUME,
    shared_counters::ATOMICS,
];

/// The case with a name.
pub fn case(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

/// A buffer of 32-bit words that are compared exactly.
const fn words(role: Role, count: u32) -> Buffer {
    Buffer {
        bytes: 4 * count as usize,
        role,
        rule: Rule::Exact(4),
    }
}

/// A buffer of 64-bit words that are compared exactly.
const fn long_words(role: Role, count: u32) -> Buffer {
    Buffer {
        bytes: 8 * count as usize,
        role,
        rule: Rule::Exact(8),
    }
}

#[cfg(test)]
mod tests;
