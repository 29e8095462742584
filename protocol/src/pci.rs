//! Identity of the PCI function.

/// Vendor ID. Not assigned by the PCI-SIG: experimental, as is the device.
pub const VENDOR_ID: u16 = 0xca57;
/// Device ID of the mediated GPU function.
pub const DEVICE_ID: u16 = 0x0001;
/// Class code 0x1200: processing accelerator (PCI Code and ID Assignment, 1.11, "Base Class 12h").
pub const CLASS: u8 = 0x12;
/// Subclass of [`CLASS`].
pub const SUBCLASS: u8 = 0x00;
/// BAR that holds the control registers (32-bit, trapped).
pub const BAR_REGISTERS: usize = 0;
/// BAR that holds the aperture (64-bit, prefetchable, memory slots).
pub const BAR_APERTURE: usize = 2;
/// BAR that holds the MSI-X structures and the doorbell pages (32-bit).
pub const BAR_DOORBELLS: usize = 4;
