//! Descriptor and page tables of a bare guest.

use causeway_mediator::host::RamError;
use zerocopy::IntoBytes;

use super::Features;
use crate::memory::GuestRam;

/// Guest-physical address of the global descriptor table.
pub const GDT: u64 = 0x1000;
/// Guest-physical address of the task state segment.
pub const TSS: u64 = 0x2000;
/// Fixed part of a 64-bit task state segment (AMD64 APM volume 2, 12.2.5); the I/O permission map
/// follows.
const TSS_FIXED_BYTES: u16 = 104;
/// Offset of the word that says where the I/O permission map begins.
const TSS_MAP_BASE: u64 = 102;
/// Size of the task state segment in bytes: its fixed part, one bit for each of 65,536 I/O ports,
/// and a final byte of ones that the processor expects.
pub const TSS_BYTES: u32 = TSS_FIXED_BYTES as u32 + 8192 + 1;
/// Guest-physical address of the top-level page table.
pub const TOP_TABLE: u64 = 0x9000;
const GIB_TABLE: u64 = 0xa000;
/// Bytes of page tables that map 512 GiB in 2 MiB pages.
const SMALL_TABLES_BYTES: u64 = 512 * 4096;

/// Selector of the code segment for CPL 0.
pub const CODE_KERNEL: u16 = 0x08;
/// Selector of the data segment for CPL 0.
pub const DATA_KERNEL: u16 = 0x10;
/// Selector of the code segment for CPL 3.
pub const CODE_USER: u16 = 0x1b;
/// Selector of the data segment for CPL 3.
pub const DATA_USER: u16 = 0x23;
/// Selector of the task state segment.
pub const TASK: u16 = 0x28;

// Bits of page table entries: AMD64 Architecture Programmer's Manual, volume 2, 5.4. User bit at
// every level, or CPL 3 sees nothing.
const PRESENT_WRITABLE_USER: u64 = 0b111;
const LARGE: u64 = 1 << 7;

/// Returns the end of the RAM below 3 GiB that a bare guest may use, as a guest-physical address.
/// This is the end of that RAM, less 2 MiB for page tables if the virtual CPU's `features` lack
/// pages of 1 GiB.
pub fn usable_low_end(ram: &GuestRam, features: Features) -> u64 {
    if features.gib_pages {
        ram.low_end()
    } else {
        ram.low_end() - SMALL_TABLES_BYTES
    }
}

/// Writes the descriptor tables, the task state segment and the page tables of a bare guest into
/// `ram`. The page tables use pages of 1 GiB if the virtual CPU's `features` include them,
/// otherwise pages of 2 MiB.
///
/// # Errors
/// [`RamError`] if guest RAM has no room for the tables.
pub fn write_tables(ram: &GuestRam, features: Features) -> Result<(), RamError> {
    ram.write(GDT, descriptors().as_bytes())?;
    // A KVM by software does not keep IOPL while the guest runs, and asks the permission map: all
    // zero allows all.
    ram.write(TSS + TSS_MAP_BASE, TSS_FIXED_BYTES.as_bytes())?;
    ram.write(TSS + u64::from(TSS_BYTES) - 1, &[0xff])?;
    ram.write(TOP_TABLE, (GIB_TABLE | PRESENT_WRITABLE_USER).as_bytes())?;
    if features.gib_pages {
        return ram.write(GIB_TABLE, identity(0, 30).as_bytes());
    }
    let tables = usable_low_end(ram, features);
    for table in 0..512 {
        let address = tables + table * 4096;
        let pointer = address | PRESENT_WRITABLE_USER;
        ram.write(address, identity(table << 30, 21).as_bytes())?;
        ram.write(GIB_TABLE + table * 8, pointer.as_bytes())?;
    }
    Ok(())
}

/// Returns 512 page table entries that map consecutive pages of `1 << shift` bytes from `base` on,
/// one to one.
fn identity(base: u64, shift: u32) -> [u64; 512] {
    std::array::from_fn(|i| (base + ((i as u64) << shift)) | PRESENT_WRITABLE_USER | LARGE)
}

/// Returns the entries of the global descriptor table of a bare guest.
pub fn descriptors() -> [u64; 7] {
    let [task_low, task_high] = task_descriptor();
    [
        0,
        0x00af_9b00_0000_ffff, // CODE_KERNEL: 64-bit, DPL 0
        0x00cf_9300_0000_ffff, // DATA_KERNEL: DPL 0
        0x00af_fb00_0000_ffff, // CODE_USER: 64-bit, DPL 3
        0x00cf_f300_0000_ffff, // DATA_USER: DPL 3
        task_low,
        task_high,
    ]
}

/// Returns the descriptor of a 64-bit task state segment, which takes two slots (AMD64 APM volume
/// 2, 4.8.3).
fn task_descriptor() -> [u64; 2] {
    let limit = u64::from(TSS_BYTES - 1);
    let low = limit | (TSS & 0xff_ffff) << 16 | 0x8b << 40 | (TSS >> 24 & 0xff) << 56;
    [low, TSS >> 32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::tests::{WITH_GIB, WITHOUT_GIB};
    use crate::boot::{Privilege, system_registers};
    use causeway_protocol::boot::BOOT_PAGE;
    use kvm_bindings::kvm_sregs;

    fn entry(ram: &GuestRam, address: u64) -> u64 {
        let mut bytes = [0; 8];
        ram.read(address, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Walks the tables like a CPU, insisting on the user bit, and gives the physical address.
    fn walk(ram: &GuestRam, address: u64) -> u64 {
        let mut table = TOP_TABLE;
        for shift in [39, 30, 21] {
            let entry = entry(ram, table + (address >> shift & 511) * 8);
            assert_eq!(
                entry & PRESENT_WRITABLE_USER,
                PRESENT_WRITABLE_USER,
                "{address:#x} at {shift}"
            );
            let frame = entry & 0x000f_ffff_ffff_f000;
            if entry & LARGE != 0 {
                return frame + (address & ((1 << shift) - 1));
            }
            table = frame;
        }
        panic!("{address:#x} is not mapped by a large page");
    }

    #[test]
    fn five_hundred_and_twelve_gib_are_mapped_one_to_one() {
        for features in [WITH_GIB, WITHOUT_GIB] {
            let ram = GuestRam::new("test", 8 << 20, false).unwrap();
            write_tables(&ram, features).unwrap();
            for address in [
                0,
                0x7008,
                0x10_0000,
                3 << 30,
                0x40_1234_5678,
                (512 << 30) - 1,
            ] {
                assert_eq!(walk(&ram, address), address);
            }
        }
    }

    #[test]
    fn tables_of_small_pages_are_not_the_guests_to_use() {
        let ram = GuestRam::new("test", 8 << 20, false).unwrap();
        assert_eq!(usable_low_end(&ram, WITH_GIB), 8 << 20);
        assert_eq!(usable_low_end(&ram, WITHOUT_GIB), 6 << 20);
        write_tables(&ram, WITHOUT_GIB).unwrap();
        assert_ne!(entry(&ram, 6 << 20), 0);
        assert_eq!(entry(&ram, (6 << 20) - 8), 0);
    }

    #[test]
    fn every_port_is_permitted_by_the_task_state() {
        let ram = GuestRam::new("test", 8 << 20, false).unwrap();
        write_tables(&ram, WITH_GIB).unwrap();
        let tr = system_registers(kvm_sregs::default(), WITH_GIB, Privilege::User).tr;
        let mut task = vec![0; tr.limit as usize + 1];
        ram.read(tr.base, &mut task).unwrap();
        let bitmap = usize::from(u16::from_le_bytes([task[102], task[103]]));
        assert!(task[bitmap..bitmap + 8192].iter().all(|byte| *byte == 0));
        assert_eq!(task[bitmap + 8192..], [0xff]);
        assert!(tr.base + u64::from(tr.limit) < BOOT_PAGE);
    }
}
