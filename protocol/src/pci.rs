//! Identity of the PCI function.

/// PCI vendor ID of the device. It is experimental, not assigned by the PCI-SIG.
pub const VENDOR_ID: u16 = 0xca57;
/// PCI device ID of the Causeway function.
pub const DEVICE_ID: u16 = 0x0001;
/// PCI base class of the device, which is a processing accelerator (PCI Code and ID Assignment,
/// 1.11, "Base Class 12h").
pub const CLASS: u8 = 0x12;
/// PCI subclass of the device within [`CLASS`].
pub const SUBCLASS: u8 = 0x00;
/// Number of the BAR with the control registers. It is 32-bit, and every access to it causes an
/// exit.
pub const BAR_REGISTERS: usize = 0;
/// Number of the BAR with the aperture. It is 64-bit and prefetchable, and an access to a mapping
/// in it causes no exit.
pub const BAR_APERTURE: usize = 2;
/// Number of the BAR with the MSI-X structures and the doorbells. It is 32-bit.
pub const BAR_DOORBELLS: usize = 4;
