//! A `libcudart.so.13` and a `libcudart.so.12`: the CUDA runtime API, in which most CUDA programs
//! in C++ are written, over the public driver API of whatever `libcuda.so.1` the process has,
//! Causeway's or NVIDIA's.
//!
//! # How a call goes
//!
//! Most functions of the runtime are functions of the driver with another name: their results have
//! the same numbers, and their handles are the driver's. [`calls`] has these as a table. What is
//! left is what the runtime adds: it chooses a device and its primary context for each thread
//! ([`context`]), remembers a thread's last error ([`error`]), and knows kernels and variables by
//! addresses in the program, which nvcc's code registers before `main` ([`registry`]).
//!
//! A call goes to the driver at once. Only if the driver says that there is no context, or that it
//! was not initialized, is that done, and the call made again. So what a call costs beside the
//! driver's is some loads.
//!
//! Sources: "CUDA Runtime API" (reference manual), `cuda_runtime_api.h`, `driver_types.h`, and for
//! what nvcc's code calls `crt/host_runtime.h`, in version 13. [`cuda12`] has what is different in
//! version 12.

#![allow(
    unsafe_code,
    reason = "a C library over a C library: calls take pointers, which callers answer for"
)]
#![allow(
    clippy::cast_possible_wrap,
    reason = "the API's integers are signed, and all values here are small"
)]
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "names and arguments are those of cuda_runtime_api.h"
)]

mod array;
mod array_copy;
mod attributes;
mod calls;
mod channels;
mod configured;
mod context;
mod copy;
mod cuda12;
mod device;
mod driver;
mod entry_point;
mod error;
mod fill;
mod flat_copy;
mod graph;
mod launch;
mod launch12;
mod library;
mod memory;
mod missing;
mod node;
mod planes;
mod properties;
mod pushed;
mod registry;
mod resource;
mod shapes;
mod symbol;
mod table;
mod texture;

/// Version of the API: 1000 times the major, 10 times the minor version.
const VERSION: i32 = 13_000;
/// Version of the oldest driver with which the library works, also one for programs of CUDA 13: of
/// the driver's functions that are newer, each is missed only by the call that needs it.
const OLDEST_DRIVER: i32 = 12_000;
