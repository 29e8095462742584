//! Virtio devices for guests that boot an operating system: disks and random numbers, over PCI, as
//! Virtual I/O Device Version 1.2 has them (without the interfaces from before version 1).
//!
//! | part | does |
//! |---|---|
//! | [`VirtioFunction`] | the PCI function: configuration space, capabilities, BAR |
//! | transport | the registers in the BAR; the life of a driver: reset, features, queues, run |
//! | configuration | what the driver reads of the device, which may change |
//! | executor | who executes a device's requests: this process, another one, or the kernel |
//! | thread | the device's thread: told when a driver begins and ends |
//! | worker | what it does: takes requests from all queues, gives them back, interrupts |
//! | outside | what it does if the requests are taken elsewhere |
//! | [`vhost_user`], [`vhost_kernel`] | by another process, or by the host's kernel |
//! | ring, chain | what the guest writes in its memory, copied once and checked |
//! | [`Block`], [`Entropy`] | what is done with a request |
//!
//! A guest that breaks its queue, or a device that cannot go on, ends with the device status
//! `DEVICE_NEEDS_RESET`, and with nothing else: the driver, or the next one, resets the device.
//!
//! Lock order: the function's own, then the transport's, those of a [`DiskSlot`], the
//! configuration's, and those of [`interrupts::Interrupts`]. The worker takes none of the first
//! two.

mod block;
mod chain;
mod configuration;
mod device;
mod entropy;
mod executor;
mod function;
mod interrupts;
mod outside;
mod registers;
mod ring;
mod thread;
mod transport;
pub mod vhost_kernel;
pub mod vhost_user;
mod worker;

#[cfg(test)]
mod driver;

pub use block::{Block, DiskError, DiskImage, DiskSlot, Holder, SECTOR_BYTES};
pub use device::{Kind, QUEUES_MAX, VirtioDevice};
pub use entropy::Entropy;
pub use executor::{Device, OutsideSource};
pub use function::{Surroundings, VirtioError, VirtioFunction};
pub use outside::{Description, OutsideError, PATIENCE};
