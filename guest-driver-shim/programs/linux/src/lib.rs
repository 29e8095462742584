//! The workloads of the test guests as programs for Linux.
//!
//! The programs run in a Linux guest, where they report to the VM's test device, or on a host with
//! `causeway serve`, where they only print.

pub mod interrupts;
pub mod orders;
pub mod passed;
pub mod platform;
#[path = "../../workloads/workloads.rs"]
#[allow(missing_docs, reason = "written for the guests, which are programs")]
mod workloads;

pub use platform::run;
pub use workloads::*;
