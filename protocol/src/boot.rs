//! What a bare guest finds when it starts: processor state and the boot page.
//!
//! Every virtual CPU enters the ELF entry point in 64-bit mode at CPL 3 and IOPL 3 with interrupts
//! off, SSE usable, the first 512 GiB of guest-physical memory mapped one to one, `rdi` =
//! [`BOOT_PAGE`], `rsi` = index of the virtual CPU and `rsp` = 0 (the guest brings its own stacks).

use crate::wire::structures;

/// First port of the serial console (16550A).
pub const PORT_CONSOLE: u16 = 0x3f8;
/// Guest-physical address of the [`BootInfo`].
pub const BOOT_PAGE: u64 = 0x7000;
/// Value of [`BootInfo::magic`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"CWAYBOOT");
/// Lowest address a guest image may occupy; below it lie descriptor and page tables.
pub const IMAGE_BASE: u64 = 0x10_0000;

structures! {
    /// The boot page.
    pub struct BootInfo {
        /// [`MAGIC`].
        pub magic: u64,
        /// End of guest RAM below 3 GiB: RAM is [0, `ram_low_end`).
        pub ram_low_end: u64,
        /// End of guest RAM above 4 GiB, or zero: RAM is [4 GiB, `ram_high_end`).
        pub ram_high_end: u64,
        /// First byte behind the loaded image.
        pub image_end: u64,
        /// Frequency of the guest's time stamp counter in kHz.
        pub tsc_khz: u32,
        /// Number of virtual CPUs.
        pub vcpus: u32,
        /// Index of this VM in the run.
        pub vm: u32,
        /// Number of VMs in the run.
        pub vms: u32,
        /// Bytes of `arguments` in use.
        pub argument_bytes: u32,
        /// Zero.
        pub reserved: u32,
        /// Arguments to the guest, UTF-8.
        pub arguments: [u8; 256],
    } = 312
}
