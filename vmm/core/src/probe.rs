//! Probes of the host's KVM with a guest of a dozen bytes: how fast guest code runs at each
//! privilege level, and what an exit and a doorbell cost. Used by `causeway doctor`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_mediator::host::RamError;
use causeway_memory::{MemoryError, Window};
use causeway_protocol::boot::IMAGE_BASE;
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use vmm_sys_util::eventfd::EventFd;

use crate::boot::{self, Features, Privilege};
use crate::hypervisor::{IoEvents, KvmHypervisor, MemorySlots, Slot};
use crate::kvm::{CallError, failed, supported_cpuid};
use crate::memory::{GuestRam, RamCreateError};

const RAM_BYTES: u64 = 8 << 20;
/// Port to which the guest stores: each store exits.
const PORT: u16 = 0xca0;
/// A guest-physical address without memory.
const DOORBELL: u32 = 0xe000_0000;

/// Why a measurement of KVM with a test guest failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Memory for the test guest cannot be created.
    #[error("cannot create the memory of the small guest that tests KVM")]
    Memory(#[from] RamCreateError),
    /// This process has no free address range for the memory slot.
    #[error("cannot reserve addresses in this process for the small guest that tests KVM")]
    Addresses(#[from] MemoryError),
    /// The test guest does not fit into its memory, which never happens.
    #[error("cannot load the small guest that tests KVM")]
    Image(#[from] RamError),
    /// A system call failed, in most cases an ioctl of KVM.
    #[error("cannot run the small guest that tests KVM")]
    Kvm(#[from] CallError),
    /// The test guest stopped in another way than expected; the text says how.
    #[error("the small guest that tests KVM did not run to its end: it stopped with {0}")]
    Ended(String),
}

/// Measures how fast guest code runs at privilege level `privilege`. Returns the mean time in
/// nanoseconds of one iteration of a loop of two instructions, over `iterations` iterations. The
/// same number of iterations runs before the measurement, to warm up.
///
/// # Errors
/// [`ProbeError::Kvm`] if a system call fails, `Memory` or `Image` if the memory of the test guest
/// cannot be created or written, `Ended` if the test guest stops in another way than expected.
pub fn loop_ns(kvm: &Kvm, privilege: Privilege, iterations: u32) -> Result<f64, ProbeError> {
    // 1: mov ecx, N; 2: dec ecx; jnz 2b; mov dx, port; out dx, eax; jmp 1b
    let code = [
        &[0xb9],
        &iterations.to_le_bytes()[..],
        &[0xff, 0xc9, 0x75, 0xfc],
        &exit_code()[..],
        &[0xeb, 0xf0],
    ]
    .concat();
    let mut guest = Guest::new(kvm, privilege, &code)?;
    guest.run_to_port_exit()?;
    let start = Instant::now();
    guest.run_to_port_exit()?;
    Ok(each_ns(start.elapsed(), iterations))
}

/// Measures how long an exit to the VMM and the return to the guest take. The guest runs at
/// privilege level `privilege`, and each exit is a store to an I/O port. Returns the mean time in
/// nanoseconds over `exits` exits.
///
/// # Errors
/// [`ProbeError::Kvm`] if a system call fails, `Memory` or `Image` if the memory of the test guest
/// cannot be created or written, `Ended` if the test guest stops in another way than expected.
pub fn exit_ns(kvm: &Kvm, privilege: Privilege, exits: u32) -> Result<f64, ProbeError> {
    // mov dx, port; 1: out dx, eax; jmp 1b
    let port = PORT.to_le_bytes();
    let code = [0x66, 0xba, port[0], port[1], 0xef, 0xeb, 0xfd];
    let mut guest = Guest::new(kvm, privilege, &code)?;
    guest.run_to_port_exit()?;
    let start = Instant::now();
    for _ in 0..exits {
        guest.run_to_port_exit()?;
    }
    Ok(each_ns(start.elapsed(), exits))
}

/// Measures how long a doorbell takes: a guest's store on which KVM signals an eventfd without an
/// exit to the VMM. The guest runs at privilege level `privilege`. Returns the mean time in
/// nanoseconds over `rings` stores.
///
/// # Errors
/// [`ProbeError::Kvm`] if a system call fails, `Memory` or `Image` if the memory of the test guest
/// cannot be created or written, `Ended` if the test guest stops in another way than expected or
/// some of its stores signal no event.
pub fn doorbell_ns(kvm: &Kvm, privilege: Privilege, rings: u32) -> Result<f64, ProbeError> {
    // mov edi, address; mov ecx, N; 1: mov [rdi], eax; dec ecx; jnz 1b
    let code = [
        &[0xbf],
        &DOORBELL.to_le_bytes()[..],
        &[0xb9],
        &rings.to_le_bytes()[..],
        &[0x89, 0x07, 0xff, 0xc9, 0x75, 0xfa],
        &exit_code()[..],
    ]
    .concat();
    let mut guest = Guest::new(kvm, privilege, &code)?;
    let event = EventFd::new(libc::EFD_NONBLOCK).map_err(failed("eventfd"))?;
    guest
        .hypervisor
        .register(DOORBELL.into(), &event)
        .map_err(failed("KVM_IOEVENTFD"))?;
    let start = Instant::now();
    guest.run_to_port_exit()?;
    let time = each_ns(start.elapsed(), rings);
    let signals = event.read().map_err(failed("read"))?;
    if signals != u64::from(rings) {
        return Err(ProbeError::Ended(format!(
            "{signals} of {rings} stores signalled"
        )));
    }
    Ok(time)
}

/// Measures how long KVM takes to add a memory slot of `bytes` bytes, and to delete it. Returns the
/// mean times of adding and of deleting in nanoseconds, over `slots` repetitions.
///
/// # Errors
/// [`ProbeError::Kvm`] if a system call fails, `Memory` if the memory of the test guest cannot be
/// created, `Image` if it cannot be written, `Addresses` if this process has no free address range
/// for the slot.
pub fn slot_ns(kvm: &Kvm, bytes: u64, slots: u32) -> Result<(f64, f64), ProbeError> {
    let window = Window::reserve(bytes)?;
    let guest = Guest::new(kvm, Privilege::User, &exit_code())?;
    let (mut adding, mut deleting) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..slots {
        let slot = Slot {
            number: 1,
            gpa: 1 << 32,
            host: window.as_ptr().as_ptr() as u64,
            bytes,
            read_only: false,
        };
        let start = Instant::now();
        // SAFETY: the window outlives the slot, which is deleted below, and holds nothing anybody
        // refers to.
        #[allow(unsafe_code)]
        unsafe { guest.hypervisor.set(slot) }.map_err(failed("KVM_SET_USER_MEMORY_REGION"))?;
        adding += start.elapsed();
        let start = Instant::now();
        let deleted = guest.hypervisor.delete(slot.number);
        deleted.map_err(failed("KVM_SET_USER_MEMORY_REGION"))?;
        deleting += start.elapsed();
    }
    Ok((each_ns(adding, slots), each_ns(deleting, slots)))
}

fn each_ns(total: Duration, count: u32) -> f64 {
    total.as_nanos() as f64 / f64::from(count)
}

/// mov dx, port; out dx, eax
fn exit_code() -> [u8; 5] {
    let port = PORT.to_le_bytes();
    [0x66, 0xba, port[0], port[1], 0xef]
}

/// Fields are dropped in order: the virtual CPU and the VM go before the memory they map.
struct Guest {
    vcpu: VcpuFd,
    hypervisor: KvmHypervisor,
    _vm: Arc<VmFd>,
    _ram: GuestRam,
}

impl Guest {
    fn new(kvm: &Kvm, privilege: Privilege, code: &[u8]) -> Result<Self, ProbeError> {
        let ram = GuestRam::new("trial", RAM_BYTES, false)?;
        let vm = Arc::new(kvm.create_vm().map_err(failed("KVM_CREATE_VM"))?);
        let hypervisor = KvmHypervisor::new(Arc::clone(&vm));
        // SAFETY: the RAM is kept beside the virtual CPU and is dropped after it.
        #[allow(unsafe_code)]
        unsafe { ram.add_to(&hypervisor) }.map_err(failed("KVM_SET_USER_MEMORY_REGION"))?;
        let cpuid = supported_cpuid(kvm)?;
        boot::write_tables(&ram, Features::of(cpuid))?;
        ram.write(IMAGE_BASE, code)?;
        let vcpu = vm.create_vcpu(0).map_err(failed("KVM_CREATE_VCPU"))?;
        boot::enter(&vcpu, cpuid, 0, IMAGE_BASE, privilege)?;
        Ok(Self {
            vcpu,
            hypervisor,
            _vm: vm,
            _ram: ram,
        })
    }

    fn run_to_port_exit(&mut self) -> Result<(), ProbeError> {
        loop {
            match self.vcpu.run() {
                Ok(VcpuExit::IoOut(PORT, _)) => return Ok(()),
                Ok(other) => return Err(ProbeError::Ended(format!("{other:?}"))),
                Err(e) if e.errno() == libc::EINTR => {}
                Err(e) => return Err(failed("KVM_RUN")(e).into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_run_at_both_levels_and_every_doorbell_arrives() {
        let kvm = match crate::kvm::open() {
            Ok(kvm) => kvm,
            Err(e) => {
                assert!(std::env::var_os("CAUSEWAY_REQUIRE_KVM").is_none(), "{e}");
                eprintln!("skipped: no KVM: {e}");
                return;
            }
        };
        assert!(loop_ns(&kvm, Privilege::User, 1_000_000).unwrap() > 0.0);
        loop_ns(&kvm, Privilege::Kernel, 100).unwrap();
        assert!(exit_ns(&kvm, Privilege::User, 10).unwrap() > 0.0);
        doorbell_ns(&kvm, Privilege::User, 100).unwrap();
        slot_ns(&kvm, 2 << 20, 2).unwrap();
    }
}
