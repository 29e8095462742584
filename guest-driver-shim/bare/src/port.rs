//! Port I/O. The guest runs at IOPL 3, so ports need no kernel.

use core::arch::asm;

use causeway_shim::pci::Ports;

/// Stores a byte to a port.
pub(crate) fn write_u8(port: u16, value: u8) {
    // SAFETY: a port of the machine's own devices; what they do to memory is what the asm block may
    // do.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Stores four bytes to a port. What a device does to memory in answer is seen by code that
/// follows.
pub(crate) fn write_u32(port: u16, value: u32) {
    // SAFETY: as for bytes.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags))
    };
}

/// Access to the machine's x86 I/O ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct IoPorts;

impl Ports for IoPorts {
    fn read(&self, port: u16) -> u32 {
        let value;
        // SAFETY: as for the store.
        unsafe {
            asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags))
        };
        value
    }
    fn write(&self, port: u16, value: u32) {
        write_u32(port, value);
    }
}

impl IoPorts {
    /// Loads a byte from I/O port `port`.
    #[must_use]
    pub fn read_byte(self, port: u16) -> u8 {
        let value;
        // SAFETY: as for the store.
        unsafe {
            asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags))
        };
        value
    }

    /// Stores a byte to I/O port `port`.
    pub fn write_byte(self, port: u16, value: u8) {
        write_u8(port, value);
    }
}
