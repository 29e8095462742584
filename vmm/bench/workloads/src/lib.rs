//! Workloads of `causeway bench exits`, which the guest and the host run from the same source.
//!
//! A [`Workload`] is a sequence of GPU operations. It is written once, over the trait
//! [`Mechanism`], which has an implementation for each way to reach a GPU: several in the guest,
//! and two on the host without a VM ([`MechanismKind::is_native`]). A workload is one file in the
//! folder `workloads`, and a line in the list in `workloads.rs`.
//!
//! [`measurement_plan`] says which workloads, sizes and mechanisms a benchmark measures;
//! [`host_interface`] defines the memory and ports by which the guest's mechanisms reach the host.
#![no_std]

#[cfg(test)]
extern crate std;

mod device;
pub mod host_interface;
mod kernel;
pub mod measurement_plan;
mod mechanism;
pub mod singles;
mod workloads;

pub use causeway_kernels::line::{LINES, Line, PEER_LINES, PeerLine, PeerWork};
pub use causeway_kernels::peers::copy_sizes;
pub use device::{DeviceMemory, Exclusion};
pub use kernel::{KERNELS, Kernel};
pub use mechanism::{MECHANISMS, Mechanism, MechanismKind, Shape};
pub use workloads::{
    CELL_NAME_BYTES, Cell, Description, Stopwatch, WORKLOADS, Workload, WorkloadKind, host_bytes,
    measure, time_singles,
};
