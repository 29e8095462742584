//! State in which a virtual CPU enters a kernel, and what CPUID and memory-type registers say.
//!
//! Only the first virtual CPU is set up; the kernel starts the others, which KVM keeps waiting for
//! that.

use std::io;

use causeway_mediator::host::RamError;
use kvm_bindings::{
    CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, Msrs, kvm_cpuid_entry2, kvm_dtable, kvm_msr_entry,
    kvm_regs, kvm_segment, kvm_sregs,
};
use kvm_ioctls::{Cap, Kvm, VcpuFd};
use zerocopy::IntoBytes;

use super::boot_params::{START_INFO, ZERO_PAGE};
use super::{BootProtocol, Kernel};
use crate::boot::{CR0_ET, CR0_PE, CR0_PG, CR4_PAE, EFER_LMA, EFER_LME, segment, task_segment};
use crate::kvm::{CallError, failed};
use crate::memory::GuestRam;

const GDT: u64 = 0x500;
const TOP_TABLE: u64 = 0x9000;
const GIB_TABLE: u64 = 0xa000;
/// Four tables of 512 pages of 2 MiB.
const PAGE_TABLES: u64 = 0xb000;
const MAPPED_GIB: u64 = 4;

// Selectors of the boot protocol (Documentation/arch/x86/boot.rst, "64-bit Boot Protocol").
const CODE: u16 = 0x10;
const DATA: u16 = 0x18;
const TASK: u16 = 0x20;

/// RFLAGS: interrupts off, and the bit that is always set.
const RFLAGS: u64 = 2;

const PRESENT_WRITABLE: u64 = 0b11;
const LARGE: u64 = 1 << 7;

/// `MTRRdefType` (AMD64 APM volume 2, 7.7.2): enabled, and write-back where no other register says
/// otherwise.
const MSR_MTRR_DEFAULT: u32 = 0x2ff;
const MTRR_ENABLED_WRITE_BACK: u64 = 1 << 11 | 6;

/// Returns whether a Linux guest needs an emulated 8254 timer chip. It does if KVM lacks the local
/// APIC's deadline mode (`KVM_CAP_TSC_DEADLINE_TIMER`), because Linux then calibrates the APIC's
/// timer against the 8254.
pub fn needs_timer(kvm: &Kvm) -> bool {
    !kvm.check_extension(Cap::TscDeadlineTimer)
}

/// Writes into `ram` the segment descriptors and page tables in effect when a Linux kernel is
/// entered. A kernel that is booted by PVH is entered without paging and ignores the page tables.
///
/// # Errors
/// [`RamError`] if guest RAM has no room for the tables.
pub fn write_tables(ram: &GuestRam) -> Result<(), RamError> {
    let descriptors: [u64; 6] = [
        0,
        0,
        0x00af_9b00_0000_ffff, // CODE: 64-bit
        0x00cf_9300_0000_ffff, // DATA
        0x0000_8b00_0000_0067, // TASK: of 64 bits, two slots
        0,
    ];
    ram.write(GDT, descriptors.as_bytes())?;
    ram.write(TOP_TABLE, (GIB_TABLE | PRESENT_WRITABLE).as_bytes())?;
    for gib in 0..MAPPED_GIB {
        let table = PAGE_TABLES + gib * 4096;
        ram.write(GIB_TABLE + gib * 8, (table | PRESENT_WRITABLE).as_bytes())?;
        let entries: [u64; 512] = std::array::from_fn(|page| {
            (gib << 30 | (page as u64) << 21) | PRESENT_WRITABLE | LARGE
        });
        ram.write(table, entries.as_bytes())?;
    }
    Ok(())
}

/// Returns the system registers with which a kernel is entered by `protocol`. `sregs` are those
/// that KVM gave the virtual CPU; what boot protocols leave open stays as it is there.
fn system_registers(mut sregs: kvm_sregs, protocol: BootProtocol) -> kvm_sregs {
    let long = protocol != BootProtocol::Pvh;
    let data = segment(DATA, 0x3);
    sregs.cs = kvm_segment {
        l: long.into(),
        db: (!long).into(),
        ..segment(CODE, 0xb)
    };
    (sregs.ds, sregs.es, sregs.ss) = (data, data, data);
    (sregs.fs, sregs.gs) = (data, data);
    sregs.tr = task_segment(TASK, 0, 0x67);
    sregs.gdt = kvm_dtable {
        base: GDT,
        limit: 6 * 8 - 1,
        ..kvm_dtable::default()
    };
    sregs.idt = kvm_dtable::default();
    sregs.cr0 = CR0_PE | CR0_ET;
    sregs.cr4 = 0;
    sregs.efer = 0;
    if long {
        sregs.cr0 |= CR0_PG;
        sregs.cr3 = TOP_TABLE;
        sregs.cr4 = CR4_PAE;
        sregs.efer = EFER_LME | EFER_LMA;
    }
    sregs
}

/// Returns the general registers with which a kernel is entered at `entry` by `protocol`.
fn registers(entry: u64, protocol: BootProtocol) -> kvm_regs {
    let blank = kvm_regs {
        rip: entry,
        rflags: RFLAGS,
        ..kvm_regs::default()
    };
    match protocol {
        BootProtocol::Pvh => kvm_regs {
            rbx: START_INFO,
            ..blank
        },
        BootProtocol::BzImage | BootProtocol::Linux64 => kvm_regs {
            rsi: ZERO_PAGE,
            ..blank
        },
    }
}

/// Sets the system and general registers of virtual CPU `vcpu` so that it starts at the entry point
/// of `kernel`.
///
/// # Errors
/// [`CallError`] if KVM refuses a call.
pub fn enter(vcpu: &VcpuFd, kernel: &Kernel) -> Result<(), CallError> {
    let fresh = vcpu.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
    vcpu.set_sregs(&system_registers(fresh, kernel.protocol))
        .map_err(failed("KVM_SET_SREGS"))?;
    vcpu.set_regs(&registers(kernel.entry, kernel.protocol))
        .map_err(failed("KVM_SET_REGS"))
}

/// Sets a virtual CPU's memory-type registers (MTRRs) to write-back for all addresses. After a
/// reset of the processor they say uncached, and the guest's kernel would use uncached memory.
///
/// # Errors
/// KVM's error if it refuses the register; `EINVAL` if it ignores the register.
pub fn set_memory_types(vcpu: &VcpuFd) -> io::Result<()> {
    let entry = kvm_msr_entry {
        index: MSR_MTRR_DEFAULT,
        data: MTRR_ENABLED_WRITE_BACK,
        ..kvm_msr_entry::default()
    };
    let msrs = Msrs::from_entries(&[entry]).map_err(|_| io::ErrorKind::InvalidInput)?;
    match vcpu.set_msrs(&msrs).map_err(io::Error::from)? {
        1 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// Returns the CPUID leaves for virtual CPU number `index` of a guest with `vcpus` virtual CPUs.
/// They are the leaves that KVM supports, with a topology of one socket and one thread per core. If
/// `deadline_timer` is set, they also announce the local APIC's deadline timer, which KVM has but
/// does not list.
pub fn cpuid_of(supported: &CpuId, index: u32, vcpus: u32, deadline_timer: bool) -> CpuId {
    // Leaves 0xb and 0x1f are written again.
    let kept = supported.as_slice().iter();
    let kept = kept.filter(|entry| !matches!(entry.function, 0xb | 0x1f));
    let mut entries: Vec<_> = kept
        .map(|entry| adapt(*entry, index, vcpus, deadline_timer))
        .collect();
    if entries.iter().any(|e| e.function == 0 && e.eax >= 0xb) {
        entries.extend(topology(index, vcpus));
    }
    // The list was KVM's and has become longer by three at most.
    CpuId::from_entries(&entries).unwrap_or_else(|_| supported.clone())
}

/// Leaves and fields: AMD64 APM volume 3, appendix E; Intel SDM volume 2, CPUID.
fn adapt(
    mut entry: kvm_cpuid_entry2,
    index: u32,
    vcpus: u32,
    deadline_timer: bool,
) -> kvm_cpuid_entry2 {
    /// ECX of leaf 1: the deadline timer.
    const DEADLINE_TIMER: u32 = 1 << 24;
    /// ECX of leaf 1: there is a hypervisor.
    const HYPERVISOR: u32 = 1 << 31;
    /// EDX of leaf 1: EBX says how many CPUs share the package.
    const SHARED_PACKAGE: u32 = 1 << 28;
    match entry.function {
        1 => {
            entry.ebx = entry.ebx & 0xff00 | entry.ebx & 0xff | vcpus << 16 | index << 24;
            entry.ecx |= HYPERVISOR;
            if deadline_timer {
                entry.ecx |= DEADLINE_TIMER;
            }
            entry.edx &= !SHARED_PACKAGE;
            if vcpus > 1 {
                entry.edx |= SHARED_PACKAGE;
            }
        }
        // Caches: all share the third level, and each has its own first and second.
        4 | 0x8000_001d => {
            let sharers = if entry.eax >> 5 & 7 == 3 { vcpus } else { 1 };
            entry.eax = entry.eax & 0x3fff | (sharers - 1) << 14;
            if entry.function == 4 && entry.eax & 0x1f != 0 {
                entry.eax |= (vcpus - 1).min(63) << 26;
            }
        }
        0x8000_0008 => entry.ecx = entry.ecx & !0xf0ff | index_bits(vcpus) << 12 | (vcpus - 1),
        0x8000_001e => {
            entry.eax = index;
            entry.ebx = index;
            entry.ecx = 0;
        }
        _ => {}
    }
    entry
}

/// Leaf 0xb: threads of a core, cores of the package, and the end.
fn topology(index: u32, vcpus: u32) -> [kvm_cpuid_entry2; 3] {
    const THREADS: u32 = 1 << 8;
    const CORES: u32 = 2 << 8;
    let levels = [
        (0, 0, 1, THREADS),
        (1, index_bits(vcpus), vcpus, CORES),
        (2, 0, 0, 0),
    ];
    levels.map(|(number, shift, processors, kind)| kvm_cpuid_entry2 {
        function: 0xb,
        index: number,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        eax: shift,
        ebx: processors,
        ecx: number | kind,
        edx: index,
        ..kvm_cpuid_entry2::default()
    })
}

/// Bits that hold the index of a CPU.
fn index_bits(vcpus: u32) -> u32 {
    vcpus.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_gib_are_mapped_one_to_one() {
        let ram = GuestRam::new("test", 8 << 20, false).unwrap();
        write_tables(&ram).unwrap();
        let entry = |address: u64| {
            let mut bytes = [0; 8];
            ram.read(address, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        for address in [0, 0x10_0000, 0x4567_8000, 0xffff_f000u64] {
            let top = entry(TOP_TABLE + (address >> 39) * 8) & !0xfff;
            let gib = entry(top + (address >> 30 & 511) * 8) & !0xfff;
            let page = entry(gib + (address >> 21 & 511) * 8);
            assert_eq!(page & 0xfff, PRESENT_WRITABLE | LARGE);
            assert_eq!((page & !0xfff) + (address & 0x1f_ffff), address);
        }
        assert_eq!(entry(GIB_TABLE + 32), 0);
    }

    #[test]
    fn pvh_starts_in_protected_mode_and_linux_in_long_mode() {
        let pvh = system_registers(kvm_sregs::default(), BootProtocol::Pvh);
        assert_eq!(
            (pvh.cr0 & CR0_PG, pvh.efer, pvh.cs.l, pvh.cs.db),
            (0, 0, 0, 1)
        );
        assert_eq!(registers(1, BootProtocol::Pvh).rbx, START_INFO);
        let linux = system_registers(kvm_sregs::default(), BootProtocol::Linux64);
        assert_eq!(
            (linux.cs.selector, linux.cs.l, linux.ds.selector),
            (0x10, 1, 0x18)
        );
        assert_eq!(linux.efer, EFER_LME | EFER_LMA);
        assert_eq!(registers(1, BootProtocol::BzImage).rsi, ZERO_PAGE);
    }

    #[test]
    fn every_cpu_has_its_place_in_one_package() {
        let leaf = |function, eax| kvm_cpuid_entry2 {
            function,
            eax,
            ebx: 0x0102_0304,
            ..Default::default()
        };
        let supported =
            CpuId::from_entries(&[leaf(0, 0xd), leaf(1, 0), leaf(0xb, 9), leaf(0x8000_0008, 0)])
                .unwrap();
        let cpuid = cpuid_of(&supported, 2, 3, true);
        let find = |function, index| {
            let mut leaves = cpuid.as_slice().iter();
            *leaves
                .find(|e| e.function == function && e.index == index)
                .unwrap()
        };
        assert_eq!(find(1, 0).ebx, 0x0203_0304);
        assert_eq!(find(1, 0).ecx, 1 << 31 | 1 << 24);
        assert_eq!(find(1, 0).edx, 1 << 28);
        assert_eq!((find(0xb, 0).eax, find(0xb, 0).edx), (0, 2));
        assert_eq!(
            (find(0xb, 1).eax, find(0xb, 1).ebx, find(0xb, 1).ecx),
            (2, 3, 0x201)
        );
        assert_eq!(find(0x8000_0008, 0).ecx, 0x2002);
        let alone = cpuid_of(&supported, 0, 1, false);
        assert_eq!(alone.as_slice()[1].edx, 0);
    }
}
