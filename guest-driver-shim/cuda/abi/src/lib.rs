//! The CUDA driver API as a library that implements it sees it: results of calls, structures of
//! `cuda.h`, pointers of callers as types, and objects behind opaque handles.
//!
//! Two libraries need it: `libcuda.so.1` for programs in guests, and the stand-in for NVIDIA's
//! driver in tests.

#![allow(
    unsafe_code,
    reason = "a C library: calls take pointers, which callers answer for"
)]
#![allow(
    missing_docs,
    reason = "codes and fields are those of cuda.h, whose documentation says what they mean"
)]
#![allow(
    missing_debug_implementations,
    reason = "pointers of callers have nothing to show"
)]

pub mod boundary;
pub mod error;
pub mod handles;
pub mod structures;
