//! ACPI tables: what the machine consists of.
//!
//! Hardware-reduced ACPI (ACPI Specification 6.5, 4.1): no timers, no system control interrupt and
//! no old interrupt controllers, so that no kernel looks for them.

use acpi_tables::Aml;
use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{
    EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic,
};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::xsdt::XSDT;
use causeway_mediator::host::RamError;

use super::memory_map::ACPI_BASE;
use super::power;
use crate::memory::GuestRam;
use crate::pci::Layout;

mod dsdt;

const OEM: [u8; 6] = *b"CAUSEW";
const OEM_TABLE: [u8; 8] = *b"CAUSEWAY";
const OEM_REVISION: u32 = 1;
/// Where KVM's interrupt chips are (Intel SDM volume 3, 11.4.1; ICH9 data sheet, 13.5.1).
const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;
/// Flags of the PC architecture (ACPI 6.5, table 5.11): no VGA, no clock of old. Neither are there
/// old devices or a keyboard controller, which a set bit would say.
const BOOT_ARCHITECTURE: u16 = 1 << 2 | 1 << 5;

/// Writes the ACPI tables of a machine with `vcpus` virtual CPUs into `ram`. The tables describe
/// the PCI addresses in `layout`. Returns the guest-physical address of ACPI's root pointer (RSDP).
///
/// # Errors
/// [`RamError`] if [`ACPI_BASE`] is not in guest RAM, or the tables need more room than there is
/// below the reset vector.
pub fn write(ram: &GuestRam, vcpus: u32, layout: &Layout) -> Result<u64, RamError> {
    // The root pointer has the first place, which is where it is searched, and is written last.
    let mut next = ACPI_BASE + Rsdp::len() as u64;
    let mut place = |table: &dyn Aml| {
        let mut code = Vec::new();
        table.to_aml_bytes(&mut code);
        let (address, bytes) = (next.next_multiple_of(16), code.len() as u64);
        next = address + bytes;
        if next > power::RESET_VECTOR {
            return Err(RamError { address, bytes });
        }
        ram.write(address, &code)?;
        Ok(address)
    };
    let dsdt = place(&dsdt::dsdt(layout))?;
    let fadt = place(&fadt(dsdt))?;
    let madt = place(&madt(vcpus))?;
    let mut xsdt = XSDT::new(OEM, OEM_TABLE, OEM_REVISION);
    xsdt.add_entry(fadt);
    xsdt.add_entry(madt);
    let xsdt = place(&xsdt)?;
    let mut root = Vec::new();
    Rsdp::new(OEM, xsdt).to_aml_bytes(&mut root);
    ram.write(ACPI_BASE, &root)?;
    Ok(ACPI_BASE)
}

fn fadt(dsdt: u64) -> impl Aml {
    let mut fadt = FADTBuilder::new(OEM, OEM_TABLE, OEM_REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton)
        .flag(Flags::Headless);
    fadt.iapc_boot_arch = BOOT_ARCHITECTURE.into();
    fadt.reset_reg = port(power::RESET);
    fadt.reset_value = power::RESET_VALUE;
    fadt.sleep_control_reg = port(power::SLEEP_CONTROL);
    fadt.sleep_status_reg = port(power::SLEEP_STATUS);
    fadt.finalize()
}

fn port(port: u16) -> GAS {
    GAS::new(
        AddressSpace::SystemIo,
        8,
        0,
        AccessSize::ByteAccess,
        port.into(),
    )
}

fn madt(vcpus: u32) -> impl Aml {
    let mut madt = MADT::new(
        OEM,
        OEM_TABLE,
        OEM_REVISION,
        LocalInterruptController::Address(LOCAL_APIC),
    );
    for index in 0..u8::try_from(vcpus).unwrap_or(u8::MAX) {
        madt.add_structure(ProcessorLocalApic::new(
            index,
            index,
            EnabledStatus::Enabled,
        ));
    }
    madt.add_structure(IoApic::new(0, IO_APIC, 0));
    madt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(ram: &GuestRam, address: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        ram.read(address, &mut data).unwrap();
        data
    }

    fn word(ram: &GuestRam, address: u64) -> u64 {
        u64::from_le_bytes(bytes(ram, address, 8).try_into().unwrap())
    }

    /// Returns a table, whose checksum has to be right.
    fn table(ram: &GuestRam, address: u64) -> Vec<u8> {
        let length = word(ram, address + 4) as u32 as usize;
        let table = bytes(ram, address, length);
        let sum = table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(
            sum,
            0,
            "checksum of {:?}",
            String::from_utf8_lossy(&table[..4])
        );
        table
    }

    fn written(vcpus: u32) -> GuestRam {
        let ram = GuestRam::new("test", 16 << 20, false).unwrap();
        let layout = Layout::new(48, 16 << 20, 64 << 30).unwrap();
        assert_eq!(write(&ram, vcpus, &layout).unwrap(), ACPI_BASE);
        ram
    }

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    #[test]
    fn all_tables_are_reached_from_the_root_and_add_up() {
        let ram = written(4);
        let root = bytes(&ram, ACPI_BASE, 36);
        assert_eq!(&root[..8], b"RSD PTR ");
        assert_eq!((sum(&root[..20]), sum(&root)), (0, 0));
        let xsdt = word(&ram, ACPI_BASE + 24);
        assert_eq!(&table(&ram, xsdt)[..4], b"XSDT");
        let [fadt, madt] = [36, 44].map(|at| word(&ram, xsdt + at));
        let fixed = table(&ram, fadt);
        assert_eq!(&fixed[..4], b"FACP");
        assert_eq!(&table(&ram, word(&ram, fadt + 140))[..4], b"DSDT");
        let flags = u32::from_le_bytes(fixed[112..116].try_into().unwrap());
        assert_eq!(flags & (1 << 20 | 1 << 10), 1 << 20 | 1 << 10);
        // Offset 120 is the address in the reset register's description.
        assert_eq!(word(&ram, fadt + 120), u64::from(power::RESET));
        let interrupts = table(&ram, madt);
        assert_eq!(&interrupts[..4], b"APIC");
        assert_eq!(interrupts.len(), 44 + 4 * 8 + 12);
    }

    #[test]
    fn tables_of_the_largest_machine_fit() {
        written(64);
    }
}
