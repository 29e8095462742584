//! Sessions in worker processes, one process for each VM.
//!
//! A worker holds what a mediator needs for one guest: the back end (a CUDA context, say), the session, its consumers.
//! It has the guest's RAM mapped and shares allocations with the VMM by descriptors; guest and GPU meet in memory, so
//! the data path does not know of processes. What a guest does to its worker, by a fault that poisons a context or by
//! taking it over, stays there.
//!
//! * [`Workers`] starts workers for a VMM, which sees a [`causeway_mediator::SessionSource`].
//! * [`serve`] is what a worker process runs.
//!
//! # Sockets
//!
//! One pair for control, one *lane* for each caller at a time, and a spare pair. The caller of a lane (a virtual CPU's
//! thread) sends a request and, until the reply comes, does for the worker what only the VMM can: place memory in the
//! aperture, bind doorbells, hand exports on. Other threads of the worker ask for that over the spare pair.

mod bus_error;
mod event;
mod parent;
mod report;
mod served;
mod socket;
#[cfg(test)]
mod tests;
mod wire;

/// What CUDA and Vulkan both know a device by.
pub type DeviceUuid = [u8; 16];

pub use parent::{ImportDevice, Program, WorkerSession, Workers};
pub use served::{Equipment, ServeError, serve};
