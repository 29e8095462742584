//! KVM's interrupt chips.

use std::collections::BTreeMap;
use std::io;

use kvm_bindings::{
    KVM_IRQ_ROUTING_IRQCHIP, KVM_IRQ_ROUTING_MSI, KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER,
    KVM_IRQCHIP_PIC_SLAVE, KvmIrqRouting, kvm_irq_routing_entry,
    kvm_irq_routing_entry__bindgen_ty_1, kvm_irq_routing_irqchip, kvm_irq_routing_msi,
};
use vmm_sys_util::eventfd::EventFd;

use super::{InterruptChips, MsiMessage};
use crate::hypervisor::KvmHypervisor;

/// Pins of KVM's I/O APIC.
const IO_APIC_PINS: u32 = 24;
/// Pins of each of the two old interrupt controllers.
const PIC_PINS: u32 = 8;

impl InterruptChips for KvmHypervisor {
    fn set_messages(&self, messages: &BTreeMap<u32, MsiMessage>) -> io::Result<()> {
        let mut entries = pins();
        entries.extend(messages.iter().map(|(gsi, message)| entry(*gsi, *message)));
        let routing = KvmIrqRouting::from_entries(&entries)
            .map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
        Ok(self.vm().set_gsi_routing(&routing)?)
    }

    fn connect(&self, event: &EventFd, gsi: u32) -> io::Result<()> {
        Ok(self.vm().register_irqfd(event, gsi)?)
    }

    fn connect_resampled(&self, event: &EventFd, handled: &EventFd, gsi: u32) -> io::Result<()> {
        let vm = self.vm();
        Ok(vm.register_irqfd_with_resample(event, handled, gsi)?)
    }

    fn disconnect(&self, event: &EventFd, gsi: u32) -> io::Result<()> {
        Ok(self.vm().unregister_irqfd(event, gsi)?)
    }

    fn set_level(&self, gsi: u32, asserted: bool) -> io::Result<()> {
        Ok(self.vm().set_irq_line(gsi, asserted)?)
    }
}

/// Returns the routing of the chips' pins, as KVM has it before a table is set (Linux,
/// arch/x86/kvm/irq_comm.c, `default_routing`).
fn pins() -> Vec<kvm_irq_routing_entry> {
    let io_apic = (0..IO_APIC_PINS).map(|gsi| pin(gsi, KVM_IRQCHIP_IOAPIC, gsi));
    let isa = (0..2 * PIC_PINS).map(|gsi| match gsi.checked_sub(PIC_PINS) {
        None => pin(gsi, KVM_IRQCHIP_PIC_MASTER, gsi),
        Some(slave) => pin(gsi, KVM_IRQCHIP_PIC_SLAVE, slave),
    });
    isa.chain(io_apic).collect()
}

fn pin(gsi: u32, irqchip: u32, pin: u32) -> kvm_irq_routing_entry {
    kvm_irq_routing_entry {
        gsi,
        type_: KVM_IRQ_ROUTING_IRQCHIP,
        u: kvm_irq_routing_entry__bindgen_ty_1 {
            irqchip: kvm_irq_routing_irqchip { irqchip, pin },
        },
        ..Default::default()
    }
}

fn entry(gsi: u32, message: MsiMessage) -> kvm_irq_routing_entry {
    let msi = kvm_irq_routing_msi {
        address_lo: message.address as u32,
        address_hi: (message.address >> 32) as u32,
        data: message.data,
        ..Default::default()
    };
    kvm_irq_routing_entry {
        gsi,
        type_: KVM_IRQ_ROUTING_MSI,
        u: kvm_irq_routing_entry__bindgen_ty_1 { msi },
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupts::{InterruptController, LINE_FIRST};
    use std::sync::Arc;

    #[test]
    fn every_isa_interrupt_has_two_pins_and_every_line_one() {
        let pins = pins();
        for gsi in 0..IO_APIC_PINS {
            let count = pins.iter().filter(|entry| entry.gsi == gsi).count();
            assert_eq!(count, if gsi < LINE_FIRST { 2 } else { 1 }, "{gsi}");
        }
    }

    #[test]
    fn kvm_takes_what_we_ask_of_it() {
        let Ok(kvm) = crate::kvm::open() else {
            eprintln!("skipped: there is no KVM");
            return;
        };
        let vm = Arc::new(kvm.create_vm().unwrap());
        if let Err(e) = vm.create_irq_chip() {
            eprintln!("skipped: this KVM has no interrupt chips: {e}");
            return;
        }
        let controller = InterruptController::new(Box::new(KvmHypervisor::new(vm)));
        let message = controller.message().unwrap();
        message.trigger();
        assert!(message.is_pending());
        let to_cpu = |data| MsiMessage {
            address: 0xfee0_0000,
            data,
        };
        message.set(Some(to_cpu(0x41))).unwrap();
        message.set(Some(to_cpu(0x42))).unwrap();
        assert!(!message.is_pending());
        message.set(None).unwrap();
        let line = controller.line(LINE_FIRST + 3).unwrap();
        line.set(true);
        line.set(false);
        controller.edge(4).unwrap().trigger();
        let resampled = controller.resampled_line(LINE_FIRST + 3).unwrap();
        resampled.event().write(1).unwrap();
    }
}
