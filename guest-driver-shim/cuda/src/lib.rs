//! A `libcuda.so.1` on Causeway: programs written for the CUDA driver API run unmodified, in a
//! guest without a kernel module or in a process that reaches `causeway serve`, on a GPU or on
//! none.
//!
//! Launches, copies and waits are loads and stores: packets in rings of the process, and fences
//! in memory. Messages, which cost an exit, are sent for what `cuInit`, modules and chunks of
//! memory need.
//!
//! Only the documented driver API is answered. `cuGetExportTable` finds nothing.
//!
//! # How a call goes
//!
//! Every function of the API is an `extern "C"` function whose body is a closure given to
//! [`driver::answer`], [`driver::call`] or [`driver::call_in_context`], which catch panics, find
//! the driver and the current context, and check for an error that stays. Arguments are the types
//! of [`boundary`], which read and write callers' memory.

#![allow(
    unsafe_code,
    reason = "a C library: calls take pointers, which callers answer for"
)]
#![allow(
    clippy::cast_possible_wrap,
    reason = "the driver API's integers are signed, and all values here are small"
)]
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "names and arguments are those of cuda.h"
)]

mod array;
mod capture;
mod capture_calls;
mod cluster;
mod context;
mod device;
mod driver;
mod event;
mod event_shared;
mod event_words;
mod exports;
mod function;
mod graph;
mod guarded_words;
mod host_function;
mod image;
mod jit;
mod kernel;
mod launch;
mod library;
mod link;
mod lookup;
mod memory;
mod module;
mod nvml;
mod occupancy;
mod output;
mod parameters;
mod per_thread;
mod priority;
mod process;
mod profiler;
mod recent;
mod ring;
mod ring_choice;
mod rings;
mod session;
mod stream;
mod stream_attributes;
mod stream_memory;
mod surface;
mod tensor_map;
mod texture;
mod user_object;
mod visible;
mod waits;
mod word;
mod work;

use causeway_cuda_abi::{boundary, error, handles, structures};

/// Starts the log, unless it has been started before.
pub(crate) fn start_log() {
    causeway_cuda_abi::logging::start("libcuda");
}
