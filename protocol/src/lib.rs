//! What the two sides of a Causeway device agree on, and nothing else.
//!
//! * [`registers`]: BAR 0, and the layout of BAR 2 and BAR 4.
//! * [`message`]: control messages. They travel in batches through guest memory; a batch costs one
//!   exit.
//! * [`packet`]: what a command buffer holds. Packets cost no exit.
//! * [`ring`]: how a command buffer is laid out, and the sleep/wake rule of its consumer.
//! * [`pci`]: identity of the PCI function.
//! * [`boot`]: what a bare guest finds when it starts; not a part of the device.
//! * [`socket`]: the device over a Unix socket, for development without a VM.
//!
//! Everything is little-endian and naturally aligned, and structures carry size assertions.
//! Reserved fields are zero; a receiver refuses anything else, so that they can be given a meaning
//! later.
//!
//! A receiver on the host treats every byte as hostile: copy a structure out of shared memory once,
//! then validate the copy.
#![no_std]
#![deny(missing_docs)]
// The structures all derive `Debug`; what zerocopy derives for them defines types that do not.
#![allow(missing_debug_implementations)]

#[cfg(test)]
extern crate std;

pub mod boot;
pub mod message;
pub mod packet;
pub mod pci;
pub mod registers;
pub mod ring;
pub mod socket;
pub mod wire;

/// Major version of the protocol. Guest and host must have the same one.
pub const VERSION_MAJOR: u16 = 1;
/// Minor version of the protocol. A higher one only adds what an older side can ignore.
pub const VERSION_MINOR: u16 = 5;

wire::wire_enum! {
    /// Access rights of a mapping, an export or an import.
    ///
    /// There is no value for write-only, because neither KVM nor CUDA offers write-only memory.
    #[derive(PartialOrd, Ord)]
    pub enum Access: u32 {
        /// No access: an access by the GPU is a fault, and an access by the CPU is a stray access.
        None = 0,
        /// Loads only.
        Read = 1,
        /// Loads, stores and atomics.
        ReadWrite = 3,
    }
}

impl Access {
    /// Returns the number that stands for these rights in messages.
    pub const fn wire(self) -> u32 {
        self as u32
    }

    /// Returns whether these rights include all rights of `wanted`.
    pub const fn allows(self, wanted: Self) -> bool {
        self as u32 & wanted as u32 == wanted as u32
    }
}
