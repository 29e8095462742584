//! The VMM: virtual machines on KVM, and the device through which their guests reach a mediated GPU.

pub mod boot;
pub mod bus;
pub mod console;
pub mod counters;
pub mod host;
pub mod hypervisor;
pub mod kvm;
pub mod loader;
pub mod memory;
pub mod statistics;
