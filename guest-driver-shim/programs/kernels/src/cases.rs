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

use crate::case::Case;

/// All test cases. Every module is well-formed, and every launch ends.
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

/// Returns the case whose kernel is called `name`; `None` if no case has this kernel.
pub fn case(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

#[cfg(test)]
mod tests;
