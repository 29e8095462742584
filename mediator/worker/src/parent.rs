//! The VMM's side: worker processes, and sessions that live in them.
//!
//! A guest may have taken its worker over. What a worker sends is checked like what a guest sends; one that breaks the
//! protocol is killed, and its guest has lost the device.

mod broker;
mod calls;
mod descriptors;
mod guest;
mod lost;
mod process;
mod session;
mod start;
mod worker;
mod workers;

pub use process::Program;
pub use session::WorkerSession;
pub use workers::{ImportDevice, Workers};
