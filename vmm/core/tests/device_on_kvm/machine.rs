//! A VM around the aperture and the doorbells, and nothing else.

use std::ops::ControlFlow;
use std::sync::Arc;

use causeway_memory::{Backing, Mapping, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::registers::doorbells::BAR4_BYTES;
use causeway_vmm::aperture::{Aperture, Apertures, EmulationRetry, FaultError, FaultOutcome};
use causeway_vmm::boot;
use causeway_vmm::bus::{GuestAddress, MmioBus, StrayCounters};
use causeway_vmm::device::{DoorbellBar, Doorbells, VECTORS};
use causeway_vmm::hypervisor::{KvmHypervisor, MemorySlots, RAM_SLOT_FIRST, Slot};
use causeway_vmm::memory::GuestRam;
use causeway_vmm::pci::MsixTable;
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_xcrs};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

use crate::guest::DONE;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const APERTURE: u64 = 256 * GIB;
pub const APERTURE_BYTES: u64 = 4 * GIB;
pub const DOORBELLS: u64 = 0xe020_0000;
pub const RESULTS: u64 = 2 * MIB;
const CODE: u64 = MIB;
const RAM_BYTES: u64 = 8 * MIB;

pub struct Machine {
    pub vcpus: Vec<VcpuFd>,
    pub aperture: Arc<Aperture>,
    pub doorbells: Arc<Doorbells>,
    pub bus: Arc<MmioBus>,
    pub strays: Arc<StrayCounters>,
    // Behind what has slots and ioeventfds in it, and before the memory of its slots.
    _vm: Arc<VmFd>,
    pub ram: GuestRam,
}

/// A VM with one virtual CPU for each guest; none, with the reason, if there is no KVM.
pub fn machine(guests: &[&[u8]]) -> Option<Machine> {
    let kvm = match causeway_vmm::kvm::open() {
        Ok(kvm) => kvm,
        Err(e) => {
            eprintln!("skipped: no KVM: {e}");
            return None;
        }
    };
    let vm = Arc::new(kvm.create_vm().unwrap());
    let hypervisor = KvmHypervisor::new(Arc::clone(&vm));
    hypervisor.exit_on_emulation_failure().unwrap();
    let ram = GuestRam::new("test", RAM_BYTES, false).unwrap();
    let slot = Slot {
        number: RAM_SLOT_FIRST,
        gpa: 0,
        host: ram.regions().next().unwrap().host().as_ptr() as u64,
        bytes: RAM_BYTES,
        read_only: false,
    };
    // SAFETY: the RAM is dropped after the VM, and reached by volatile copies only.
    unsafe { hypervisor.set(slot) }.unwrap();
    let vcpus = boot_all(&kvm, &vm, &ram, guests);
    let strays = Arc::new(StrayCounters::default());
    let bus = Arc::new(MmioBus::new(Arc::clone(&strays)));
    let aperture = Aperture::new(APERTURE_BYTES, Arc::new(hypervisor.clone())).unwrap();
    let aperture = Arc::new(aperture);
    let device = Arc::clone(&aperture);
    bus.insert(GuestAddress(APERTURE), APERTURE_BYTES, device)
        .unwrap();
    aperture.relocate(Some(APERTURE)).unwrap();
    let doorbells = Arc::new(Doorbells::new(Arc::new(hypervisor)));
    let table = Arc::new(MsixTable::silent(VECTORS));
    let bar = Arc::new(DoorbellBar::new(table, Arc::clone(&doorbells)));
    bus.insert(GuestAddress(DOORBELLS), BAR4_BYTES, bar)
        .unwrap();
    Some(Machine {
        vcpus,
        aperture,
        doorbells,
        bus,
        strays,
        _vm: vm,
        ram,
    })
}

fn boot_all(kvm: &Kvm, vm: &VmFd, ram: &GuestRam, guests: &[&[u8]]) -> Vec<VcpuFd> {
    let supported = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).unwrap();
    let features = boot::Features::of(&supported);
    boot::write_tables(ram, features).unwrap();
    let boot_one = |(code, index): (&&[u8], u32)| {
        let at = CODE + u64::from(index) * 4096;
        ram.write(at, code).unwrap();
        let vcpu = vm.create_vcpu(index.into()).unwrap();
        vcpu.set_cpuid2(&boot::cpuid_of(&supported, index)).unwrap();
        let sregs =
            boot::system_registers(vcpu.get_sregs().unwrap(), features, boot::Privilege::User);
        vcpu.set_sregs(&sregs).unwrap();
        if features.xcr0 != 0 {
            let mut xcrs = kvm_xcrs {
                nr_xcrs: 1,
                ..Default::default()
            };
            xcrs.xcrs[0].value = features.xcr0;
            vcpu.set_xcrs(&xcrs).unwrap();
        }
        vcpu.set_regs(&boot::registers(at, index)).unwrap();
        vcpu
    };
    guests.iter().zip(0u32..).map(boot_one).collect()
}

impl Machine {
    /// A word of the results.
    pub fn result(&self, index: u64) -> u64 {
        let mut bytes = [0; 8];
        self.ram.read(RESULTS + 8 * index, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Runs virtual CPU 0.
    pub fn run(&mut self) -> Result<Counts, FaultError> {
        run(&mut self.vcpus[0], &self.aperture, &self.bus)
    }
}

/// r12, r13, r14 (guest-physical), rbx and rbp of a guest.
pub fn set_registers(vcpu: &VcpuFd, [r12, r13, r14]: [u64; 3], results: u64, count: u64) {
    let mut regs = vcpu.get_regs().unwrap();
    (regs.r12, regs.r13, regs.r14) = (r12, r13, r14);
    (regs.rbx, regs.rbp) = (results, count);
    vcpu.set_regs(&regs).unwrap();
}

/// What happened while a guest ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Accesses that needed resolving.
    pub resolved: u32,
    /// MMIO exits.
    pub mmio: u32,
    /// Instructions that were tried again.
    pub retried: u32,
}

/// Runs until the guest says that it is done, as a VMM's loop does.
pub fn run(
    vcpu: &mut VcpuFd,
    aperture: &Arc<Aperture>,
    bus: &MmioBus,
) -> Result<Counts, FaultError> {
    let apertures = Apertures(vec![Arc::clone(aperture)]);
    let mut counts = Counts::default();
    let mut retry = EmulationRetry::default();
    loop {
        let (mut fault, mut cannot) = (false, false);
        match vcpu.run() {
            Ok(VcpuExit::MemoryFault { .. }) => fault = true,
            Ok(VcpuExit::InternalError) => cannot = true,
            Ok(VcpuExit::Shutdown) => panic!(
                "triple fault: {:#x?} {:?}",
                vcpu.get_regs(),
                vcpu.get_vcpu_events()
            ),
            Ok(exit) => {
                if dispatch(exit, bus, &mut counts).is_break() {
                    return Ok(counts);
                }
            }
            Err(e) if e.errno() == libc::EFAULT => fault = true,
            Err(e) => assert_eq!(e.errno(), libc::EINTR),
        }
        if fault {
            let outcome = apertures.resolve(vcpu, |exit| dispatch(exit, bus, &mut counts))?;
            assert_eq!(outcome, FaultOutcome::Resolved);
            counts.resolved += 1;
        }
        if cannot {
            let rip = vcpu.get_regs().unwrap().rip;
            assert!(apertures.retry_emulation(&mut retry), "rip {rip:#x}");
            counts.retried += 1;
        }
    }
}

fn dispatch(exit: VcpuExit<'_>, bus: &MmioBus, counts: &mut Counts) -> ControlFlow<()> {
    counts.mmio += 1;
    match exit {
        VcpuExit::MmioRead(address, data) => {
            let _ = bus.read(GuestAddress(address), data);
        }
        VcpuExit::MmioWrite(address, data) => {
            let _ = bus.write(GuestAddress(address), data);
        }
        VcpuExit::IoOut(DONE, _) => {
            counts.mmio -= 1;
            return ControlFlow::Break(());
        }
        other => panic!("unexpected exit {other:?}"),
    }
    ControlFlow::Continue(())
}

/// A memory object and a view of all of it.
pub fn object(bytes: u64, pages: PageSize) -> (Backing, Mapping) {
    let memory = Arc::new(SharedMemory::new("test", bytes, pages).unwrap());
    let mapping = memory.map(0, bytes, Access::ReadWrite).unwrap();
    (memory.into(), mapping)
}
