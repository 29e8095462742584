//! Workloads and mechanisms of `causeway bench exits`, as far as guest and host share them.
//!
//! A [`Workload`] is what is done to a GPU, written once over [`Mechanism`], which is how it is
//! done. Guests have a mechanism for each way of virtualizing a GPU; the host has those without any
//! ([`MechanismKind::is_native`]). So every cell of the table is the same source compiled for both
//! sides. A workload is one file in [`workloads`], and a line in its list.
//!
//! [`plan`] says which cells there are, [`wire`] how a guest talks to the devices of the
//! mechanisms.
#![no_std]

#[cfg(test)]
extern crate std;

mod device;
mod kernel;
mod mechanism;
pub mod plan;
pub mod wire;
pub mod workloads;

pub use causeway_kernels::line::{LINES, Line};
pub use device::{DeviceMemory, Exclusion};
pub use kernel::{KERNELS, Kernel};
pub use mechanism::{MECHANISMS, Mechanism, MechanismKind, Shape};
pub use workloads::{CELL_NAME_BYTES, Cell, Stopwatch, WORKLOADS, Workload, WorkloadKind, measure};
