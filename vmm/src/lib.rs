//! The VMM: virtual machines on KVM, and the device through which their guests reach a mediated GPU.

pub mod bus;
pub mod hypervisor;
pub mod kvm;
pub mod memory;
