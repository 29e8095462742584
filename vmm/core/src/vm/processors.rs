//! KVM's part of a VM: memory slots of RAM, and virtual CPUs that are ready to enter the guest
//! image.

use std::sync::Arc;

use causeway_protocol::boot::{BOOT_PAGE, BootInfo};
use kvm_bindings::{
    CpuId, KVM_MP_STATE_RUNNABLE, KVM_PIT_SPEAKER_DUMMY, kvm_mp_state, kvm_pit_config,
};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use zerocopy::IntoBytes;

use super::error::VmError;
use super::{Boot, ConfigError, VmConfig};
use crate::boot::{self, Features, Privilege};
use crate::hypervisor::{KvmHypervisor, SLOTS_PER_GPU};
use crate::interrupts::InterruptController;
use crate::kvm::{failed, supported_cpuid};
use crate::linux::{self, Linux};
use crate::loader;
use crate::memory::GuestRam;
use crate::pci::{Layout, physical_address_bits};

/// Where KVM on Intel hides three pages of task state (Documentation/virt/kvm/api.rst, 4.36): in
/// the gap below 4 GiB, above every BAR.
const KVM_TASK_STATE: usize = 0xfffb_d000;
/// Offset of the spurious-interrupt vector register of a local APIC (Intel SDM volume 3, 11.9).
const SPURIOUS_VECTOR: usize = 0xf0;

/// Refuses several GPUs on a KVM with too few memory slots.
fn check_slots(kvm: &Kvm, gpus: u32) -> Result<(), VmError> {
    let slots = u32::try_from(kvm.get_nr_memslots()).unwrap_or(u32::MAX);
    let wanted = gpus * SLOTS_PER_GPU;
    match gpus > 1 && slots < wanted {
        true => Err(VmError::Slots {
            slots,
            gpus,
            wanted,
        }),
        false => Ok(()),
    }
}

/// A VM with RAM and virtual CPUs, before it has devices.
pub(super) struct Processors {
    pub vm: Arc<VmFd>,
    pub hypervisor: KvmHypervisor,
    pub ram: Arc<GuestRam>,
    pub vcpus: Vec<VcpuFd>,
    pub cpuid: &'static CpuId,
    pub tsc_khz: u32,
    /// Guest-physical addresses of the BARs of PCI functions.
    pub layout: Layout,
    /// The VM's interrupt controller. A bare guest has none unless devices are passed through to
    /// it.
    pub interrupts: Option<Arc<InterruptController>>,
    /// Whether KVM has the local timers' deadline mode.
    deadline_timer: bool,
}

impl Processors {
    /// Leaves addresses for `gpus` Causeway functions. Gives up when `interrupted` returns true.
    pub fn new(
        kvm: &Kvm,
        config: &VmConfig,
        gpus: u32,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Self, VmError> {
        give_up_if(interrupted)?;
        check_slots(kvm, gpus)?;
        let ram = GuestRam::new(&config.name, config.memory_bytes, config.large_pages)?;
        if let Some(node) = &config.node {
            ram.bind_to_node(node.number())?;
        }
        let vm = Arc::new(kvm.create_vm().map_err(failed("KVM_CREATE_VM"))?);
        vm.set_tss_address(KVM_TASK_STATE)
            .map_err(failed("KVM_SET_TSS_ADDR"))?;
        let hypervisor = KvmHypervisor::new(Arc::clone(&vm));
        let interrupts = match config.boot {
            Boot::Bare { .. } => {
                report_emulation_failures(&hypervisor);
                // A device raises interrupts, and it takes a controller to see them.
                let wanted = config.devices.as_ref();
                wanted.map(|_| interrupt_chips(&hypervisor)).transpose()?
            }
            // An operating system deals with a process's instructions that cannot be emulated
            // itself.
            Boot::Linux(_) => {
                let chips = interrupt_chips(&hypervisor)?;
                old_timer(kvm, &hypervisor)?;
                Some(chips)
            }
        };
        // SAFETY: `Vm` joins the threads of its virtual CPUs before it lets go of its RAM.
        #[allow(unsafe_code)]
        unsafe { ram.add_to(&hypervisor) }.map_err(failed("KVM_SET_USER_MEMORY_REGION"))?;
        let cpuid = supported_cpuid(kvm)?;
        let bits = physical_address_bits(cpuid.as_slice());
        let ram_end = ram.low_end().max(ram.high_end());
        let mut layout = Layout::of(gpus, bits, ram_end, config.aperture_bytes)?;
        if config.devices.is_some() {
            layout = layout.with_high_window(ram_end);
        }
        let create = |index| {
            give_up_if(interrupted)?;
            Ok(vm.create_vcpu(index).map_err(failed("KVM_CREATE_VCPU"))?)
        };
        let vcpus = (0..config.vcpus.into()).map(create);
        let vcpus = vcpus.collect::<Result<Vec<_>, VmError>>()?;
        let first = vcpus
            .first()
            .ok_or(ConfigError::Vcpus { vcpus: 0, limit: 1 })?;
        let tsc_khz = first.get_tsc_khz().map_err(failed("KVM_GET_TSC_KHZ"))?;
        Ok(Self {
            vm,
            hypervisor,
            ram: Arc::new(ram),
            vcpus,
            cpuid,
            tsc_khz,
            layout,
            interrupts,
            deadline_timer: !linux::needs_timer(kvm),
        })
    }

    /// Loads the guest into RAM, writes the tables that it needs to start, and sets the registers
    /// of all virtual CPUs so that they start at the guest's entry point.
    pub fn boot(&self, config: &VmConfig) -> Result<(), VmError> {
        match &config.boot {
            Boot::Bare {
                image,
                arguments,
                privilege,
            } => self.boot_bare(config, image, arguments, *privilege),
            Boot::Linux(linux) => self.boot_linux(linux),
        }
    }

    fn boot_linux(&self, linux: &Linux) -> Result<(), VmError> {
        let count = self.vcpus.len() as u32;
        linux::prepare(&self.ram, linux, count, &self.layout)?;
        for (index, vcpu) in (0..).zip(&self.vcpus) {
            let cpuid = linux::cpuid_of(self.cpuid, index, count, self.deadline_timer);
            vcpu.set_cpuid2(&cpuid).map_err(failed("KVM_SET_CPUID2"))?;
            linux::set_memory_types(vcpu).map_err(failed("KVM_SET_MSRS"))?;
        }
        // The others wait until the kernel starts them.
        if let Some(first) = self.vcpus.first() {
            linux::enter(first, &linux.kernel)?;
        }
        Ok(())
    }

    fn boot_bare(
        &self,
        config: &VmConfig,
        image: &[u8],
        arguments: &str,
        privilege: Privilege,
    ) -> Result<(), VmError> {
        let features = Features::of(self.cpuid);
        let usable_end = boot::usable_low_end(&self.ram, features);
        let image = loader::load(&self.ram, image, usable_end)?;
        boot::write_tables(&self.ram, features)?;
        let bytes = arguments.len();
        let blank = boot::boot_info(arguments).ok_or(ConfigError::Arguments { bytes })?;
        let info = BootInfo {
            ram_low_end: usable_end,
            ram_high_end: self.ram.high_end(),
            image_end: image.end,
            tsc_khz: self.tsc_khz,
            vcpus: config.vcpus,
            vm: config.index,
            vms: config.vms,
            ..blank
        };
        self.ram.write(BOOT_PAGE, info.as_bytes())?;
        for (index, vcpu) in (0..).zip(&self.vcpus) {
            boot::enter(vcpu, self.cpuid, index, image.entry, privilege)?;
            if self.interrupts.is_some() {
                start_with_chips(vcpu)?;
            }
        }
        Ok(())
    }
}

fn give_up_if(interrupted: &mut dyn FnMut() -> bool) -> Result<(), VmError> {
    match interrupted() {
        true => Err(VmError::Interrupted),
        false => Ok(()),
    }
}

fn report_emulation_failures(hypervisor: &KvmHypervisor) {
    if let Err(e) = hypervisor.exit_on_emulation_failure() {
        log::debug!(
            "KVM does not report instructions that it cannot emulate, so the guest gets an \
             exception: {e}"
        );
    }
}

/// Creates KVM's interrupt chips. KVM requires this before it creates the first virtual CPU.
fn interrupt_chips(hypervisor: &KvmHypervisor) -> Result<Arc<InterruptController>, VmError> {
    let chips = hypervisor.vm().create_irq_chip();
    chips.map_err(failed("KVM_CREATE_IRQCHIP"))?;
    Ok(InterruptController::new(Box::new(hypervisor.clone())))
}

/// Creates the 8254 timer chip where operating systems need it.
fn old_timer(kvm: &Kvm, hypervisor: &KvmHypervisor) -> Result<(), VmError> {
    if !linux::needs_timer(kvm) {
        return Ok(());
    }
    let timer = hypervisor.vm().create_pit2(kvm_pit_config {
        flags: KVM_PIT_SPEAKER_DUMMY,
        ..Default::default()
    });
    Ok(timer.map_err(failed("KVM_CREATE_PIT2"))?)
}

/// Makes a virtual CPU of a bare guest ready to run although it has interrupt chips: otherwise it
/// would wait for another virtual CPU to start it by an interrupt. Also enables its local APIC,
/// which is disabled after a reset, so that it takes messages.
fn start_with_chips(vcpu: &VcpuFd) -> Result<(), VmError> {
    let state = kvm_mp_state {
        mp_state: KVM_MP_STATE_RUNNABLE,
    };
    vcpu.set_mp_state(state)
        .map_err(failed("KVM_SET_MP_STATE"))?;
    let mut local = vcpu.get_lapic().map_err(failed("KVM_GET_LAPIC"))?;
    // The register is of 32 bits, its bit 8 the enable.
    local.regs[SPURIOUS_VECTOR + 1] |= 1;
    Ok(vcpu.set_lapic(&local).map_err(failed("KVM_SET_LAPIC"))?)
}
