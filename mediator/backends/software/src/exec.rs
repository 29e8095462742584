//! Execution: warps of 32 lanes that compute side by side, blocks of warps, grids of blocks.
//!
//! A warp executes one operation for all of its active lanes at a time, over registers laid out
//! lane by lane, so that the host's vector instructions do the work. Lanes that part ways become
//! groups, each at its own position; the group that is furthest behind runs, and groups that meet
//! are one again.
#![allow(
    unsafe_code,
    reason = "registers, shared, local and global memory are reached by raw pointers"
)]
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_wrap,
    reason = "lanes are bits, reinterpreted on purpose"
)]

pub(crate) mod access;
mod arena;
pub(crate) mod atomic;
mod barrier;
mod block;
mod call;
mod coalesced;
mod context;
mod converge;
mod fault;
mod grid;
mod groups;
mod lanes;
mod launch;
mod load;
pub(crate) mod matrix;
pub(crate) mod predicate;
mod printf;
pub(crate) mod shuffle;
pub(crate) mod special;
mod store;
pub(crate) mod surface;
pub(crate) mod system;
pub(crate) mod texture;
mod together;
mod warp;
pub(crate) mod wide;

use std::time::Duration;

pub(crate) use arena::{KEPT_BYTES, ThreadArena};
pub(crate) use atomic::atomic;
pub(crate) use context::Context;
pub use grid::Multiprocessors;
pub(crate) use lanes::{
    CARRY_IN, CARRY_OUT, binary, binary_with, carrying, compare, select, ternary, ternary_with,
    unary, unary_with,
};
pub(crate) use launch::{
    Launch, LaunchOutcome, Visible, fits_together, footprint_bytes, thread_bytes,
};
pub(crate) use load::{load, parameter};
pub(crate) use special::fence;
pub(crate) use store::store;

/// Runs blocks of a launch until none is left, or until `turn` is over. Any number of host threads
/// may do so at once, each with its own arena.
pub(crate) fn work(launch: &Launch, arena: &mut ThreadArena, turn: Option<Duration>) {
    match launch.is_together() {
        true => together::work(launch, arena),
        false => block::work(launch, arena, turn),
    }
}
