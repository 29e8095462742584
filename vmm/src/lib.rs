//! The VMM: virtual machines on KVM, and the device through which their guests reach a mediated GPU.

pub mod aperture;
pub mod boot;
pub mod bus;
pub mod console;
pub mod counters;
pub mod device;
pub mod event_loop;
pub mod exit;
pub mod harness;
pub mod host;
pub mod hypervisor;
pub mod interrupts;
mod kick;
pub mod kvm;
mod lifecycle;
pub mod linux;
pub mod loader;
pub mod memory;
pub mod outcome;
pub mod pci;
pub mod probe;
pub mod registers;
pub mod signals;
pub mod statistics;
mod vcpu;
pub mod virtio;
pub mod vm;
