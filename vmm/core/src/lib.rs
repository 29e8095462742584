//! The VMM: virtual machines on KVM, and the device through which their guests reach a mediated
//! GPU.

#[macro_use]
mod debug_by_name;

pub mod aperture;
pub mod boot;
pub mod bus;
pub mod console;
pub mod counters;
pub mod device;
mod error_chain;
pub mod event_loop;
pub mod exit;
pub mod exit_counts;
pub mod host;
pub mod hypervisor;
pub mod interrupts;
mod kick;
pub mod kvm;
mod lifecycle;
pub mod linux;
pub mod loader;
pub mod memory;
pub mod numa;
pub mod observer;
pub mod outcome;
pub mod passthrough;
pub mod pause;
pub mod pause_switch;
pub mod pci;
pub mod probe;
pub mod registers;
pub mod signals;
pub mod start_pages;
pub mod statistics;
pub mod tracepoints;
mod vcpu;
pub mod vcpu_state;
mod vcpu_threads;
pub mod virtio;
pub mod vm;
pub mod waits;
