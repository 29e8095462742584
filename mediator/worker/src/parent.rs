//! The VMM's side: worker processes, and sessions that live in them.
//!
//! A guest may control its worker. The VMM checks what a worker sends like what a guest sends. A
//! worker that breaks the protocol is killed, and its session is lost.

mod account;
mod broker;
mod calls;
mod channel;
mod descriptors;
mod guest;
mod lacking;
mod leases;
mod living;
mod mapped;
mod objects;
mod origins;
mod overdue;
mod partitions;
mod process;
mod refused;
mod session;
mod shared;
mod spare;
mod stand_in;
mod start;
mod starter;
mod successor;
mod worker;
mod workers;

pub use living::kill_workers;
pub use session::WorkerSession;
pub use shared::ImportDevice;
pub use starter::Program;
pub use workers::Workers;
