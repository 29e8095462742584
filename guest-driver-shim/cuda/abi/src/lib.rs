//! The CUDA driver API as a library that implements it sees it: results of calls, structures of
//! `cuda.h`, pointers of callers as types, and objects behind opaque handles.
//!
//! These need it: `libcuda.so.1`, `libcudart.so.12` and `libcudart.so.13` for programs, and the
//! stand-in for NVIDIA's driver in tests.

#![allow(
    unsafe_code,
    reason = "a C library: calls take pointers, which callers answer for"
)]
#![allow(
    missing_docs,
    reason = "fields of structures and names of results are those of cuda.h"
)]

pub mod boundary;
pub mod error;
pub mod handles;
pub mod logging;
pub mod structures;
