//! The differentiated system description table: PCI, the serial port, and how to turn the machine
//! off.

use acpi_tables::Aml;
use acpi_tables::aml::{
    AddressSpace, AddressSpaceCacheable, Device, EISAName, IO, Interrupt, Name, PackageBuilder,
    Path, ResourceTemplate, ZERO,
};
use acpi_tables::sdt::Sdt;

use super::{OEM, OEM_REVISION, OEM_TABLE};
use crate::console::CONSOLE_BYTES;
use crate::interrupts::pci_line;
use crate::linux::{SERIAL_GSI, power};
use crate::pci::{CONFIG_PORTS, CONFIG_PORTS_BYTES, LOW_BASE, LOW_END, Layout};
use causeway_protocol::boot::PORT_CONSOLE;

/// Devices on a PCI bus.
const DEVICES: u8 = 32;
/// Pin INTA#, as configuration space numbers it and as the routing table does.
const PIN_A: (u8, u8) = (1, 0);

/// Returns ACPI's differentiated system description table (DSDT). The table tells the guest about
/// PCI with the addresses in `layout`, about the serial port, and how to turn the machine off.
pub fn dsdt(layout: &Layout) -> Sdt {
    let mut code = Vec::new();
    pci(layout, &mut code);
    serial(&mut code);
    sleep_types(&mut code);
    let mut table = Sdt::new(*b"DSDT", 36, 2, OEM, OEM_TABLE, OEM_REVISION);
    table.append_slice(&code);
    table
}

/// The root of PCI: one bus, reached by configuration mechanism #1; a window of 32-bit addresses,
/// one for the apertures, and one for other large BARs if there may be any.
fn pci(layout: &Layout, code: &mut Vec<u8>) {
    let buses = AddressSpace::new_bus_number(0u16, 0);
    let mechanism = IO::new(CONFIG_PORTS, CONFIG_PORTS, 1, CONFIG_PORTS_BYTES as u8);
    let low = AddressSpace::new_memory(
        AddressSpaceCacheable::NotCacheable,
        true,
        LOW_BASE as u32,
        (LOW_END - 1) as u32,
        None,
    );
    let wide = |(start, end)| {
        let cacheable = AddressSpaceCacheable::NotCacheable;
        AddressSpace::<u64>::new_memory(cacheable, true, start, end - 1, None)
    };
    let aperture = wide((layout.aperture, layout.apertures_end()));
    let high = layout.high_window.map(wide);
    let mut windows: Vec<&dyn Aml> = vec![&buses, &mechanism, &low, &aperture];
    windows.extend(high.as_ref().map(|window| window as &dyn Aml));
    let resources = ResourceTemplate::new(windows);
    Device::new(
        Path::new("_SB_.PCI0"),
        vec![
            &Name::new(Path::new("_HID"), &EISAName::new("PNP0A03")),
            &Name::new(Path::new("_UID"), &ZERO),
            &Name::new(Path::new("_CRS"), &resources),
            &Name::new(Path::new("_PRT"), &routing()),
        ],
    )
    .to_aml_bytes(code);
}

/// Which line each device's INTA# is wired to; no device of ours has another pin.
fn routing() -> PackageBuilder {
    let mut routing = PackageBuilder::new();
    for device in 0..DEVICES {
        let mut entry = PackageBuilder::new();
        // ACPI 6.5, 6.2.13: all functions of the device, the pin, no link device, the line itself.
        entry.add_element(&(u32::from(device) << 16 | 0xffff));
        entry.add_element(&PIN_A.1);
        entry.add_element(&ZERO);
        entry.add_element(&pci_line(device, PIN_A.0));
        routing.add_element(&entry);
    }
    routing
}

fn serial(code: &mut Vec<u8>) {
    let ports = IO::new(PORT_CONSOLE, PORT_CONSOLE, 1, CONSOLE_BYTES as u8);
    let interrupt = Interrupt::new(true, true, false, false, SERIAL_GSI);
    Device::new(
        Path::new("_SB_.COM1"),
        vec![
            &Name::new(Path::new("_HID"), &EISAName::new("PNP0501")),
            &Name::new(Path::new("_UID"), &ZERO),
            &Name::new(
                Path::new("_CRS"),
                &ResourceTemplate::new(vec![&ports, &interrupt]),
            ),
        ],
    )
    .to_aml_bytes(code);
}

fn sleep_types(code: &mut Vec<u8>) {
    let mut off = PackageBuilder::new();
    off.add_element(&power::SLEEP_TYPE_OFF);
    Name::new(Path::new("_S5_"), &off).to_aml_bytes(code);
}
