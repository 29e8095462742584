//! The header of configuration space (PCI Local Bus Specification 3.0, 6.1 and 6.2), as the guest
//! sees it.

use super::filter::Owner::{Cleared, Fixed, Guest, Passed, Shown};
use super::filter::{Patch, patch};
use crate::pci::{COMMAND_BUS_MASTER, COMMAND_INTX_DISABLE, COMMAND_MEMORY};

/// Offset in configuration space of the pointer to the first capability.
pub const CAPABILITIES: usize = 0x34;
/// Offset in configuration space of the status register.
pub const STATUS: u8 = 0x06;
/// Bit 4 of the status register: the function has a list of capabilities, to which [`CAPABILITIES`]
/// points.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Offset in configuration space of the first base address register.
pub const BARS: u64 = 0x10;
/// Offset in configuration space of the first byte behind the header.
pub const END: u8 = 0x40;
/// Offset in configuration space of the interrupt line register, which the interrupt pin register
/// follows.
pub const INTERRUPT: usize = 0x3c;

/// Command bits that report errors: parity (6), SERR# (8).
const COMMAND_ERRORS: u16 = 1 << 6 | 1 << 8;
/// Status bits that tell what the device can do, or is doing: interrupt (3), 66 MHz (5), fast
/// back-to-back (7), timing (10:9).
const STATUS_SHOWN: u16 = 1 << 3 | 1 << 5 | 1 << 7 | 3 << 9;
/// Status bits of errors, which are cleared by storing a one: 8 and 15:11.
const STATUS_ERRORS: u16 = 1 << 8 | 0xf800;

/// Rules for the header, the first 64 bytes of configuration space. Rules for BARs, capabilities
/// and the interrupt pin are added for each device. All other bits are zero: I/O decoding, latency,
/// header type (one function, whatever the host's device has), self-test and expansion ROM.
///
/// The memory enable bit that the guest sees is emulated: it decides whether the BARs are on the
/// bus and have memory slots. In the device itself memory stays enabled, since an access of the VMM
/// to disabled memory would be a fault of the VMM.
pub const HEADER: [Patch; 13] = [
    // Vendor and device.
    patch(0x00, 0xffff, Shown),
    patch(0x02, 0xffff, Shown),
    // Command.
    patch(0x04, COMMAND_MEMORY | COMMAND_INTX_DISABLE, Guest(0)),
    patch(0x04, COMMAND_BUS_MASTER | COMMAND_ERRORS, Passed),
    patch(STATUS, STATUS_SHOWN, Shown),
    patch(STATUS, STATUS_ERRORS, Cleared),
    // Revision and class.
    patch(0x08, 0xffff, Shown),
    patch(0x0a, 0xffff, Shown),
    // Cache line size, which nothing of PCI Express looks at.
    patch(0x0c, 0x00ff, Guest(0)),
    // Subsystem.
    patch(0x2c, 0xffff, Shown),
    patch(0x2e, 0xffff, Shown),
    // Expansion ROM: no bit of it can be set, so it has no size.
    patch(0x30, 0xffff, Fixed(0)),
    // How long it needs the bus, in quarters of a microsecond.
    patch(0x3e, 0xffff, Shown),
];
