//! The workloads of the test guests, for bare guests and for Linux.
//!
//! This is the source of a module, not a crate, because the bare guests
//! (`guest-driver-shim/programs/bare`) and the programs for Linux
//! (`guest-driver-shim/programs/linux`) are in different cargo workspaces. Both include this module
//! beside their own module `platform`, which provides CPUs, time, RAM, the transport to the device,
//! and reports to the test device.

mod cases;
pub mod compute;
pub mod edu;
mod expect;
mod numbers;
pub mod pattern;
mod pipeline;
mod refused;
pub mod sharing;
pub mod stream;
pub mod touch;

pub use cases::{CaseMemory, replay_case, run_case};
pub use expect::Required;
pub use numbers::{median, per};
pub use pipeline::Pipeline;
pub use refused::{Refused, refused};
