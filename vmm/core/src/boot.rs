//! State of a bare virtual CPU, and the tables in guest memory that go with it.
//!
//! Guest code starts in 64-bit mode at CPL 3 and IOPL 3, as [`causeway_protocol::boot`] promises.
//! CPL 3 because a KVM by software runs only that at full speed (CPL 0 on request, for tests:
//! [`Privilege`]); IOPL 3 so that port I/O works all the same. The task state segment permits all
//! ports as well: PVM (Linux 6.18) forgets the IOPL of a virtual CPU that was scheduled out, and
//! port I/O would then fault. The interrupt descriptor table is empty: any exception ends in a
//! triple fault, which the VMM reports.
//!
//! | guest-physical | what |
//! |---|---|
//! | 0x1000 | global descriptor table |
//! | 0x2000 | task state segment, with a map that permits all I/O ports |
//! | 0x7000 | boot page |
//! | 0x9000 | page tables: top level, then 512 entries of 1 GiB |
//!
//! A CPU without 1 GiB pages needs another 2 MiB of page tables; they lie at the end of low RAM,
//! which the boot page then does not count as RAM.

mod tables;

use causeway_protocol::boot::{BOOT_PAGE, BootInfo, MAGIC};
use kvm_bindings::{CpuId, kvm_dtable, kvm_regs, kvm_segment, kvm_sregs, kvm_xcrs};
use kvm_ioctls::VcpuFd;
use zerocopy::FromZeros;

use crate::kvm::{CallError, failed};
use tables::{
    CODE_KERNEL, CODE_USER, DATA_KERNEL, DATA_USER, GDT, TASK, TOP_TABLE, TSS, TSS_BYTES,
    descriptors,
};

pub use tables::{usable_low_end, write_tables};

// Bits of control registers and EFER: AMD64 Architecture Programmer's Manual, volume 2, 3.1. Linux
// guests have some of them too.
pub(crate) const CR0_PE: u64 = 1 << 0;
const CR0_MP: u64 = 1 << 1;
pub(crate) const CR0_ET: u64 = 1 << 4;
const CR0_NE: u64 = 1 << 5;
const CR0_WP: u64 = 1 << 16;
pub(crate) const CR0_PG: u64 = 1 << 31;
pub(crate) const CR4_PAE: u64 = 1 << 5;
const CR4_OSFXSR: u64 = 1 << 9;
const CR4_OSXMMEXCPT: u64 = 1 << 10;
const CR4_OSXSAVE: u64 = 1 << 18;
pub(crate) const EFER_LME: u64 = 1 << 8;
pub(crate) const EFER_LMA: u64 = 1 << 10;

/// RFLAGS: IOPL 3, and the bit that is always set. Interrupts are off.
const RFLAGS: u64 = 0x3002;

/// Privilege level at which a bare guest runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privilege {
    /// Level 0 (CPL 0). Guests gain nothing by it, and a KVM without hardware virtualization
    /// interprets such code instead of running it.
    Kernel,
    /// Level 3 (CPL 3), which runs at full speed on every kind of KVM.
    #[default]
    User,
}

impl Privilege {
    /// Returns the selectors of code and data. Their lowest two bits are the level.
    fn selectors(self) -> (u16, u16) {
        match self {
            Self::Kernel => (CODE_KERNEL, DATA_KERNEL),
            Self::User => (CODE_USER, DATA_USER),
        }
    }
}

/// Features of a virtual CPU on which the boot state of a bare guest depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Whether page tables can map pages of 1 GiB.
    pub gib_pages: bool,
    /// Value for XCR0, the register that enables x87, SSE and AVX state; zero if the CPU has no
    /// XSAVE.
    pub xcr0: u64,
}

impl Features {
    /// Returns the features that `cpuid` announces: the CPUID leaves that the guest will see.
    pub fn of(cpuid: &CpuId) -> Self {
        let leaf = |function: u32, index: u32| {
            cpuid
                .as_slice()
                .iter()
                .find(|e| e.function == function && e.index == index)
        };
        // AMD64 APM volume 3, appendix E: Fn8000_0001 EDX 26, Fn0000_0001 ECX 26, Fn0000_000D EAX.
        let gib_pages = leaf(0x8000_0001, 0).is_some_and(|e| e.edx & (1 << 26) != 0);
        let xsave = leaf(1, 0).is_some_and(|e| e.ecx & (1 << 26) != 0);
        let states = leaf(0xd, 0).map_or(0, |e| u64::from(e.eax));
        // x87, SSE and AVX; AVX has no business without SSE.
        let xcr0 = if xsave { states & 0b111 | 0b1 } else { 0 };
        Self { gib_pages, xcr0 }
    }
}

/// Returns a boot page that contains the guest's `arguments`. All fields about the machine, such as
/// the size of its RAM, are zero, and the caller fills them in. Returns `None` if the arguments are
/// too long for the boot page.
pub fn boot_info(arguments: &str) -> Option<BootInfo> {
    let mut info = BootInfo {
        magic: MAGIC,
        argument_bytes: u32::try_from(arguments.len()).ok()?,
        ..BootInfo::new_zeroed()
    };
    info.arguments
        .get_mut(..arguments.len())?
        .copy_from_slice(arguments.as_bytes());
    Some(info)
}

/// Returns the system registers with which a bare guest starts at privilege level `privilege` on a
/// virtual CPU with `features`. `sregs` are the initial system registers that KVM gave the virtual
/// CPU.
pub fn system_registers(
    mut sregs: kvm_sregs,
    features: Features,
    privilege: Privilege,
) -> kvm_sregs {
    let (code, data) = privilege.selectors();
    let data = segment(data, 0x3);
    sregs.cs = kvm_segment {
        l: 1,
        db: 0,
        ..segment(code, 0xb)
    };
    (sregs.ds, sregs.es, sregs.ss) = (data, data, data);
    (sregs.fs, sregs.gs) = (data, data);
    sregs.tr = task_segment(TASK, TSS, TSS_BYTES - 1);
    sregs.ldt = kvm_segment {
        unusable: 1,
        ..kvm_segment::default()
    };
    sregs.gdt = kvm_dtable {
        base: GDT,
        limit: size_of_val(&descriptors()) as u16 - 1,
        ..kvm_dtable::default()
    };
    sregs.idt = kvm_dtable::default();
    sregs.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
    sregs.cr3 = TOP_TABLE;
    sregs.cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT;
    if features.xcr0 != 0 {
        sregs.cr4 |= CR4_OSXSAVE;
    }
    sregs.efer = EFER_LME | EFER_LMA;
    sregs
}

/// Returns a flat 32-bit segment of all addresses, for the level in the selector's lowest two bits.
pub(crate) fn segment(selector: u16, type_: u8) -> kvm_segment {
    kvm_segment {
        limit: 0xffff_ffff,
        selector,
        type_,
        present: 1,
        dpl: (selector & 0b11) as u8,
        db: 1,
        s: 1,
        g: 1,
        ..kvm_segment::default()
    }
}

/// Returns a busy task state segment.
pub(crate) fn task_segment(selector: u16, base: u64, limit: u32) -> kvm_segment {
    kvm_segment {
        base,
        limit,
        selector,
        type_: 0xb,
        present: 1,
        ..kvm_segment::default()
    }
}

/// Returns the general registers with which virtual CPU number `index` of a bare guest starts.
/// `entry` is the guest-physical address of its first instruction.
pub fn registers(entry: u64, index: u32) -> kvm_regs {
    kvm_regs {
        rip: entry,
        rdi: BOOT_PAGE,
        rsi: index.into(),
        rflags: RFLAGS,
        ..kvm_regs::default()
    }
}

/// Makes virtual CPU `index` of a bare guest ready to run: sets its CPUID leaves, system registers,
/// XCR0 and general registers. `supported` are the CPUID leaves that KVM supports.
///
/// # Errors
/// [`CallError`] if KVM refuses a call.
pub fn enter(
    vcpu: &VcpuFd,
    supported: &CpuId,
    index: u32,
    entry: u64,
    privilege: Privilege,
) -> Result<(), CallError> {
    let features = Features::of(supported);
    // CPUID first: KVM checks control registers and XCR0 against it.
    vcpu.set_cpuid2(&cpuid_of(supported, index))
        .map_err(failed("KVM_SET_CPUID2"))?;
    let fresh = vcpu.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
    vcpu.set_sregs(&system_registers(fresh, features, privilege))
        .map_err(failed("KVM_SET_SREGS"))?;
    if features.xcr0 != 0 {
        let mut xcrs = kvm_xcrs {
            nr_xcrs: 1,
            ..Default::default()
        };
        xcrs.xcrs[0].value = features.xcr0;
        vcpu.set_xcrs(&xcrs).map_err(failed("KVM_SET_XCRS"))?;
    }
    vcpu.set_regs(&registers(entry, index))
        .map_err(failed("KVM_SET_REGS"))
}

/// Returns the CPUID leaves for virtual CPU `index` of a bare guest: the leaves `supported`, which
/// KVM supports, with `index` as the APIC ID.
pub fn cpuid_of(supported: &CpuId, index: u32) -> CpuId {
    let mut cpuid = supported.clone();
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            1 => entry.ebx = entry.ebx & 0x00ff_ffff | index << 24,
            0xb | 0x1f => entry.edx = index,
            _ => {}
        }
    }
    cpuid
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm_bindings::kvm_cpuid_entry2;

    pub(super) const WITH_GIB: Features = Features {
        gib_pages: true,
        xcr0: 7,
    };

    pub(super) const WITHOUT_GIB: Features = Features {
        gib_pages: false,
        xcr0: 0,
    };

    #[test]
    fn segments_say_64_bit_code_at_the_level_that_was_asked_for() {
        let sregs = system_registers(kvm_sregs::default(), WITH_GIB, Privilege::Kernel);
        assert_eq!((sregs.cs.selector, sregs.cs.dpl, sregs.cs.l), (0x08, 0, 1));
        assert_eq!((sregs.ss.selector, sregs.ss.dpl), (0x10, 0));
        let sregs = system_registers(kvm_sregs::default(), WITH_GIB, Privilege::default());
        assert_eq!((sregs.cs.selector, sregs.cs.dpl, sregs.cs.l), (0x1b, 3, 1));
        assert_eq!((sregs.ss.selector, sregs.ss.dpl), (0x23, 3));
        assert_eq!(sregs.idt.limit, 0);
        assert_eq!(sregs.gdt.limit, 55);
        let (kernel, user) = (Privilege::Kernel, Privilege::User);
        for (selector, dpl) in [
            (kernel.selectors().0, 0),
            (kernel.selectors().1, 0),
            (user.selectors().0, 3),
            (user.selectors().1, 3),
            (TASK, 0),
        ] {
            let descriptor = descriptors()[usize::from(selector >> 3)];
            assert_eq!(descriptor >> 45 & 3, dpl, "selector {selector:#x}");
            assert_eq!(descriptor >> 47 & 1, 1, "present");
        }
        assert_eq!(registers(0x10_0000, 2).rflags, 0x3002);
    }

    #[test]
    fn extended_state_follows_cpuid() {
        let leaf = |function, ecx, edx, eax| kvm_cpuid_entry2 {
            function,
            ecx,
            edx,
            eax,
            ..Default::default()
        };
        let of = |leaves: &[_]| Features::of(&CpuId::from_entries(leaves).unwrap());
        assert_eq!(of(&[]), WITHOUT_GIB);
        let all = [
            leaf(1, 1 << 26, 0, 0),
            leaf(0xd, 0, 0, 0xe7),
            leaf(0x8000_0001, 0, 1 << 26, 0),
        ];
        assert_eq!(of(&all), WITH_GIB);
        assert_eq!(of(&all[1..2]).xcr0, 0, "XSAVE itself is missing");
        assert_ne!(
            system_registers(kvm_sregs::default(), of(&all), Privilege::User).cr4 & CR4_OSXSAVE,
            0
        );
    }

    #[test]
    fn every_cpu_has_its_own_number() {
        let supported = CpuId::from_entries(&[kvm_cpuid_entry2 {
            function: 1,
            ebx: 0xff12_3456,
            ..Default::default()
        }])
        .unwrap();
        assert_eq!(cpuid_of(&supported, 3).as_slice()[0].ebx, 0x0312_3456);
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused() {
        assert_eq!(boot_info("abc").unwrap().argument_bytes, 3);
        assert!(boot_info(&"a".repeat(256)).is_some());
        assert!(boot_info(&"a".repeat(257)).is_none());
    }
}
