//! Sessions in worker processes, one process for each VM.
//!
//! A worker holds what a mediator needs for one guest: the back end (for example a CUDA context),
//! the session and its consumers. It maps the guest's RAM and shares allocations with the VMM by
//! descriptors. Guest and GPU share memory, so the data path does not depend on processes. A guest
//! that poisons or controls its worker harms no other guest.
//!
//! * [`Workers`] starts workers for a VMM, which sees a [`causeway_mediator::SessionSource`].
//! * [`serve`] is what a worker process runs. The process confines itself first ([`Confinement`]).
//! * [`start_workers`] is what the process runs that starts workers, because a VMM with guests
//!   confines itself, too.
//!
//! # Sockets
//!
//! One pair is for control. A *call channel* is a pair for one caller at a time. The caller (a
//! virtual CPU's thread) sends a request and, until the reply arrives, does for the worker what
//! only the VMM can do: place memory in the aperture, bind doorbells, pass exports on. Other
//! threads of the worker ask for that over a spare channel.

mod bus_error;
mod event;
mod memory_group;
mod parent;
mod report;
mod served;
mod socket;
mod starter;
#[cfg(test)]
mod tests;
mod wire;

/// The UUID of a GPU, which CUDA and Vulkan both report for it.
pub type DeviceUuid = [u8; 16];

pub use memory_group::{MemoryGroups, MemoryGroupsError};
pub use parent::{ImportDevice, Program, WorkerSession, Workers, kill_workers};
pub use served::{Confinement, Equipment, ServeError, serve};
pub use starter::start_workers;
