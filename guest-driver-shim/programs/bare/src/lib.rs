//! Code that several guests share.
#![no_std]

pub mod function;
pub mod platform;
#[path = "../../workloads/workloads.rs"]
mod workloads;

pub use platform::{device, open};
pub use workloads::*;
