//! The stand-in as programs see it: through its C interface, each test in a process of its own.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    clippy::macro_metavars_in_unsafe,
    reason = "every call is one into a C library whose arguments are right, or wrong on purpose"
)]

mod arrays;
mod contexts;
mod fabric;
mod graphs;
mod host;
mod modules;
mod sharing;
mod support;
mod virtual_memory;
mod work;
