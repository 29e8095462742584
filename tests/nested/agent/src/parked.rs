//! VMs that are there from the machine's first program to its end, and never run.
//!
//! KVM keeps what few VMs need behind static keys: instructions that it patches in the running
//! kernel when the first VM that needs it comes, and when the last one goes. QEMU before 8.1 may
//! run the old instructions then, when it emulates several processors (`docs/nested.md`, "What was
//! seen, and how far it is explained"). While these VMs are there none is the first or the last.

use std::io;

use kvm_ioctls::{Kvm, VcpuFd, VmFd};

/// IA32_APIC_BASE: the local interrupt controller is on (Intel SDM volume 3, 11.4.3; AMD APM volume
/// 2, 16.3.1).
const APIC_ON: u64 = 1 << 11;

/// VMs and their virtual CPUs, which KVM has as long as this.
pub struct Parked {
    _vcpus: [VcpuFd; 2],
    _vms: [VmFd; 2],
}

/// Makes them.
///
/// # Errors
/// KVM's.
pub fn park() -> io::Result<Parked> {
    make().map_err(|error| io::Error::from_raw_os_error(error.errno()))
}

/// The names are those of the keys, in Linux' virt/kvm/kvm_main.c, arch/x86/kvm/x86.c and lapic.c.
fn make() -> Result<Parked, kvm_ioctls::Error> {
    let kvm = Kvm::new()?;
    // preempt_notifier_key: there is a VM. kvm_has_noapic_vcpu: and a virtual CPU whose controller
    // is not KVM's.
    let without_controller = kvm.create_vm()?;
    let first = without_controller.create_vcpu(0)?;
    // apic_sw_disabled: no guest has switched its controller on, which Linux does early, and which
    // KVM takes note of a second later, in the midst of the guest's boot.
    let with_controller = kvm.create_vm()?;
    with_controller.create_irq_chip()?;
    let second = with_controller.create_vcpu(0)?;
    // apic_hw_disabled: it is off altogether.
    let mut registers = second.get_sregs()?;
    registers.apic_base &= !APIC_ON;
    second.set_sregs(&registers)?;
    Ok(Parked {
        _vcpus: [first, second],
        _vms: [without_controller, with_controller],
    })
}
