//! Tests of memory with a host that has none of the features which the library can do without: the
//! answers are the same.

#![allow(unsafe_code, reason = "the driver API is a C library")]

#[path = "memory.rs"]
mod memory;
#[path = "rectangles.rs"]
mod rectangles;
