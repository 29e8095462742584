//! What the guest's memory is for, in the terms of the BIOS call E820 (ACPI Specification 6.5,
//! 15.3).

use crate::memory::{GuestRam, HIGH_BASE};

/// First guest-physical address of the ACPI tables. It lies in the range in which a guest looks for
/// ACPI's root pointer (ACPI 6.5, 5.2.5.1).
pub const ACPI_BASE: u64 = 0xe_0000;
/// End of the guest-physical addresses for ACPI tables, at 1 MiB. The RAM from here on is free for
/// the kernel.
pub const ACPI_END: u64 = 0x10_0000;
/// Where the extended BIOS data area of a PC would begin: no kernel uses memory from here to 1 MiB.
const LOW_MEMORY_END: u64 = 0x9_fc00;

/// What a range of guest-physical memory is for, with the number that E820 gives it (ACPI 6.5,
/// 15.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RangeKind {
    /// RAM that the kernel may use.
    Ram = 1,
    /// Memory that the kernel must not use as RAM.
    Reserved = 2,
}

/// A range of guest-physical memory and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// First guest-physical address of the range.
    pub base: u64,
    /// Size of the range in bytes.
    pub bytes: u64,
    /// What the range is for.
    pub kind: RangeKind,
}

/// Returns the memory map of a Linux guest whose RAM is `ram`: all ranges of guest-physical memory,
/// lowest first, and what each is for.
pub fn memory_map(ram: &GuestRam) -> Vec<MemoryRange> {
    let range = |base: u64, end: u64, kind| MemoryRange {
        base,
        bytes: end - base,
        kind,
    };
    let mut map = vec![
        range(0, LOW_MEMORY_END, RangeKind::Ram),
        range(ACPI_BASE, ACPI_END, RangeKind::Reserved),
        range(ACPI_END, ram.low_end(), RangeKind::Ram),
    ];
    if ram.high_end() != 0 {
        map.push(range(HIGH_BASE, ram.high_end(), RangeKind::Ram));
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::LOW_END_MAX;

    #[test]
    fn small_guests_have_ram_below_the_gap_only() {
        let ram = GuestRam::new("test", 64 << 20, false).unwrap();
        let map = memory_map(&ram);
        assert_eq!(map.len(), 3);
        assert_eq!(map[2].base + map[2].bytes, 64 << 20);
        assert!(map.windows(2).all(|w| w[0].base + w[0].bytes <= w[1].base));
    }

    #[test]
    fn large_guests_have_the_rest_above_it() {
        let Ok(ram) = GuestRam::new("test", LOW_END_MAX + (64 << 20), false) else {
            eprintln!("skipped: this host has less than 3 GiB of memory");
            return;
        };
        let map = memory_map(&ram);
        assert_eq!(map[2].base + map[2].bytes, LOW_END_MAX);
        assert_eq!((map[3].base, map[3].bytes), (HIGH_BASE, 64 << 20));
        let ram_bytes: u64 = map
            .iter()
            .filter(|range| range.kind == RangeKind::Ram)
            .map(|range| range.bytes)
            .sum();
        assert_eq!(ram_bytes, ram.bytes() - (ACPI_END - LOW_MEMORY_END));
    }
}
