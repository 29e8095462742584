//! What test guests do with the device, whatever they run on.
//!
//! This is the source of a module, not a crate: a machine without an operating system
//! (`guest-driver-shim/programs/bare`) and Linux (`guest-driver-shim/programs/linux`) are in
//! different cargo workspaces. Each includes it beside a module `platform` of its own, which gives
//! the CPUs, time, RAM, the way to the device and reports to the test device; all else is the same
//! code.

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
