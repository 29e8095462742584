//! What a bare guest finds when it starts: processor state and the boot page.
//!
//! Every virtual CPU enters the ELF entry point in 64-bit mode at CPL 3 and IOPL 3 with interrupts
//! off, SSE usable, the first 512 GiB of guest-physical memory mapped one to one, `rdi` =
//! [`BOOT_PAGE`], `rsi` = index of the virtual CPU and `rsp` = 0 (the guest brings its own stacks).

use crate::wire::structures;

/// First I/O port of the serial console (16550A).
pub const PORT_CONSOLE: u16 = 0x3f8;
/// Guest-physical address at which the VMM puts the [`BootInfo`].
pub const BOOT_PAGE: u64 = 0x7000;
/// Value of [`BootInfo::magic`]: the bytes "CWAYBOOT".
pub const MAGIC: u64 = u64::from_le_bytes(*b"CWAYBOOT");
/// Lowest guest-physical address that a guest image may occupy. The VMM puts descriptor tables and
/// page tables below this address.
pub const IMAGE_BASE: u64 = 0x10_0000;

structures! {
    /// What the VMM tells a bare guest about its machine. It is in the boot page, at guest-physical
    /// address [`BOOT_PAGE`].
    pub struct BootInfo {
        /// Always [`MAGIC`].
        pub magic: u64,
        /// End of guest RAM below 3 GiB: RAM is [0, `ram_low_end`).
        pub ram_low_end: u64,
        /// End of guest RAM above 4 GiB, or zero: RAM is [4 GiB, `ram_high_end`).
        pub ram_high_end: u64,
        /// Guest-physical address of the first byte after the loaded guest image.
        pub image_end: u64,
        /// Frequency of the guest's time stamp counter in kHz.
        pub tsc_khz: u32,
        /// Number of virtual CPUs of this VM.
        pub vcpus: u32,
        /// Index of this VM, from 0, among the VMs that the same `causeway run` started.
        pub vm: u32,
        /// Number of VMs that the same `causeway run` started, including this one.
        pub vms: u32,
        /// Number of bytes of `arguments` that are in use.
        pub argument_bytes: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// Text of `causeway run --arguments` for the guest, in UTF-8.
        pub arguments: [u8; 256],
    } = 312
}
