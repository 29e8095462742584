//! The information for a kernel when it is entered: Linux's boot parameters, or PVH's start
//! information.

use std::ops::Range;

use linux_loader::configurator::linux::LinuxBootConfigurator;
use linux_loader::configurator::pvh::PvhBootConfigurator;
use linux_loader::configurator::{BootConfigurator, BootParams};
use linux_loader::loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use linux_loader::loader::elf::start_info::{
    hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info,
};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::memory_map::MemoryRange;

/// Guest-physical address of Linux's boot parameters, the "zero page"
/// (Documentation/arch/x86/zero-page.rst).
pub const ZERO_PAGE: u64 = 0x7000;
/// Guest-physical address of PVH's `hvm_start_info` (xen/include/public/arch-x86/hvm/start_info.h).
/// The list of modules and the memory map to which it points come after it in memory.
pub const START_INFO: u64 = 0x6000;
const MODULES: u64 = START_INFO + 0x100;
const MEMORY_MAP: u64 = START_INFO + 0x200;
/// Guest-physical address of the kernel's command line.
pub const COMMAND_LINE: u64 = 0x2_0000;

const BOOT_FLAG: u16 = 0xaa55;
const MAGIC: u32 = u32::from_le_bytes(*b"HdrS");
const VERSION: u16 = 0x020f;
/// A boot loader without an assigned number (Documentation/arch/x86/boot.rst, `type_of_loader`).
const LOADER_OTHER: u8 = 0xff;
/// `XEN_HVM_START_MAGIC_VALUE` (xen/include/public/arch-x86/hvm/start_info.h).
const START_MAGIC: u32 = 0x336e_c578;

/// What a Linux kernel is told when it starts: where its initramfs, command line, ACPI tables and
/// memory are.
pub struct BootInformation<'a> {
    /// Setup header of the bzImage that contains the kernel; `None` for an ELF kernel.
    pub header: Option<setup_header>,
    /// Guest-physical addresses of the initramfs; empty without an initramfs.
    pub initramfs: Range<u64>,
    /// Length in bytes of the command line at [`COMMAND_LINE`], with its zero byte.
    pub command_line_bytes: usize,
    /// Guest-physical address of ACPI's root pointer (RSDP).
    pub acpi_root: u64,
    /// Ranges of guest-physical memory and what each is for, lowest first.
    pub memory: &'a [MemoryRange],
}

impl BootInformation<'_> {
    /// Writes the information to [`ZERO_PAGE`] in the form of Linux's boot parameters.
    ///
    /// # Errors
    /// linux-loader's error if [`ZERO_PAGE`] is not in guest memory.
    pub fn write_linux(
        &self,
        ram: &GuestMemoryMmap,
    ) -> Result<(), linux_loader::configurator::Error> {
        let params = self.linux();
        let params = BootParams::new(&params, GuestAddress(ZERO_PAGE));
        LinuxBootConfigurator::write_bootparams(&params, ram)
    }

    /// Writes the information to [`START_INFO`] in the form of PVH's start information.
    ///
    /// # Errors
    /// linux-loader's error if [`START_INFO`], or the list of modules or memory map after it, is
    /// not in guest memory.
    pub fn write_pvh(
        &self,
        ram: &GuestMemoryMmap,
    ) -> Result<(), linux_loader::configurator::Error> {
        let modules = self.modules();
        let range = |range: &MemoryRange| hvm_memmap_table_entry {
            addr: range.base,
            size: range.bytes,
            type_: range.kind as u32,
            reserved: 0,
        };
        let memory: Vec<_> = self.memory.iter().map(range).collect();
        let info = hvm_start_info {
            magic: START_MAGIC,
            version: 1,
            nr_modules: modules.len() as u32,
            modlist_paddr: MODULES,
            cmdline_paddr: COMMAND_LINE,
            rsdp_paddr: self.acpi_root,
            memmap_paddr: MEMORY_MAP,
            memmap_entries: memory.len() as u32,
            ..hvm_start_info::default()
        };
        let mut params = BootParams::new(&info, GuestAddress(START_INFO));
        params.set_sections(&memory, GuestAddress(MEMORY_MAP));
        params.set_modules(&modules, GuestAddress(MODULES));
        PvhBootConfigurator::write_bootparams(&params, ram)
    }

    fn linux(&self) -> boot_params {
        let mut params = boot_params {
            acpi_rsdp_addr: self.acpi_root,
            hdr: self.header.unwrap_or(setup_header {
                boot_flag: BOOT_FLAG,
                header: MAGIC,
                version: VERSION,
                ..setup_header::default()
            }),
            ..boot_params::default()
        };
        params.hdr.type_of_loader = LOADER_OTHER;
        params.hdr.cmd_line_ptr = COMMAND_LINE as u32;
        params.hdr.cmdline_size = self.command_line_bytes as u32;
        if !self.initramfs.is_empty() {
            // Below 4 GiB: `place` sees to that.
            params.hdr.ramdisk_image = self.initramfs.start as u32;
            params.hdr.ramdisk_size = (self.initramfs.end - self.initramfs.start) as u32;
        }
        let mut table = params.e820_table;
        for (entry, range) in table.iter_mut().zip(self.memory) {
            *entry = boot_e820_entry {
                addr: range.base,
                size: range.bytes,
                r#type: range.kind as u32,
            };
        }
        params.e820_table = table;
        params.e820_entries = self.memory.len().min(table.len()) as u8;
        params
    }

    /// Returns PVH's list of modules: the initramfs, if there is one.
    fn modules(&self) -> Vec<hvm_modlist_entry> {
        let module = hvm_modlist_entry {
            paddr: self.initramfs.start,
            size: self.initramfs.end - self.initramfs.start,
            ..hvm_modlist_entry::default()
        };
        let modules = std::iter::once(module);
        modules.filter(|module| module.size != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::memory_map::{RangeKind, memory_map};
    use crate::memory::GuestRam;

    const INITRAMFS: Range<u64> = 0x3f0_0000..0x3f0_1234;

    fn with_information<R>(f: impl FnOnce(&GuestRam, BootInformation<'_>) -> R) -> R {
        let ram = GuestRam::new("test", 64 << 20, false).unwrap();
        let memory = memory_map(&ram);
        let information = BootInformation {
            header: None,
            initramfs: INITRAMFS,
            command_line_bytes: 6,
            acpi_root: 0xe_0000,
            memory: &memory,
        };
        f(&ram, information)
    }

    fn word(ram: &GuestRam, address: u64) -> u32 {
        let mut bytes = [0; 4];
        ram.read(address, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    /// Offsets of Documentation/arch/x86/zero-page.rst.
    #[test]
    fn the_zero_page_is_as_linux_documents_it() {
        with_information(|ram, information| {
            ram.with_view(|view| information.write_linux(view))
                .unwrap()
                .unwrap();
            assert_eq!(word(ram, ZERO_PAGE + 0x70), 0xe_0000);
            assert_eq!(word(ram, ZERO_PAGE + 0x1e8) & 0xff, 3, "memory ranges");
            assert_eq!(word(ram, ZERO_PAGE + 0x202), MAGIC);
            assert_eq!(word(ram, ZERO_PAGE + 0x210) & 0xff, 0xff, "loader");
            assert_eq!(word(ram, ZERO_PAGE + 0x218), 0x3f0_0000);
            assert_eq!(word(ram, ZERO_PAGE + 0x21c), 0x1234);
            assert_eq!(word(ram, ZERO_PAGE + 0x228), 0x2_0000);
            let third = ZERO_PAGE + 0x2d0 + 2 * 20;
            assert_eq!(word(ram, third), 0x10_0000);
            assert_eq!(word(ram, third + 8), 63 << 20);
            assert_eq!(word(ram, third + 16), RangeKind::Ram as u32);
        });
    }

    /// Offsets of xen/include/public/arch-x86/hvm/start_info.h.
    #[test]
    fn the_start_information_is_as_xen_documents_it() {
        with_information(|ram, information| {
            ram.with_view(|view| information.write_pvh(view))
                .unwrap()
                .unwrap();
            assert_eq!(word(ram, START_INFO), START_MAGIC);
            assert_eq!(word(ram, START_INFO + 12), 1, "modules");
            assert_eq!(word(ram, START_INFO + 24), 0x2_0000, "command line");
            assert_eq!(word(ram, START_INFO + 32), 0xe_0000);
            assert_eq!(word(ram, START_INFO + 48), 3, "memory ranges");
            let modules = u64::from(word(ram, START_INFO + 16));
            assert_eq!(word(ram, modules), 0x3f0_0000);
            assert_eq!(word(ram, modules + 8), 0x1234);
        });
    }

    #[test]
    fn without_an_initramfs_none_is_mentioned() {
        with_information(|_, information| {
            let information = BootInformation {
                initramfs: 0..0,
                ..information
            };
            let params = information.linux();
            assert_eq!({ params.hdr.ramdisk_size }, 0);
            assert!(information.modules().is_empty());
        });
    }
}
