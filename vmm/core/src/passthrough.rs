//! Exclusive pass-through of a host device to one guest.
//!
//! The guest sees the device itself. What it does to its registers and memory goes by memory slots,
//! without an exit; what the device does to guest memory goes through the host's IOMMU; and the
//! device's interrupts go from the host's kernel to KVM by eventfds. In between are only
//!
//! * configuration space, a table of who owns which bits ([`filter`], [`header`],
//!   [`capabilities`]);
//! * BARs: their place in the guest ([`bars`], [`slots`]), and those parts of them that cannot be
//!   slots ([`bar_device`]);
//! * what kind of interrupts the guest has chosen ([`interrupts`], [`msi`]);
//! * the devices of a VM from the first reset to the last ([`devices`]), and what they did
//!   ([`report`]).
//!
//! I/O BARs are not shown: every access would be an exit, and a PCI Express device must work
//! without them (PCI Express Base Specification 5.0, 7.5.1.2.1). The expansion ROM is not shown:
//! there is no firmware that would run it. Nor are capabilities that are not listed in
//! [`capabilities`], and with them no way by which the guest could reset the function or turn its
//! power off.
//!
//! Lock order: a function's own, then that of its interrupts, then those of the MSI-X table and of
//! [`crate::interrupts`].

mod bar_device;
mod bars;
mod capabilities;
mod devices;
mod failure_counter;
mod filter;
mod function;
mod header;
mod interrupts;
mod msi;
mod report;
mod slots;
mod source;
#[cfg(test)]
mod tests;

pub use devices::{PassthroughDevices, Surroundings};
pub use report::{BarReport, DeviceReport, InterruptReport, MappedRange};
pub use slots::SlotNumbers;
pub use source::{DeviceSource, HostDevices, PassThroughError};
