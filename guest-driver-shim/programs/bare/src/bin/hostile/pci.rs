//! Attacks configuration space: sizing, relocation, and BARs at invalid addresses.

use causeway_bare::{IoPorts, PciTransport};
use causeway_guests::Required;
use causeway_protocol::pci::{BAR_APERTURE, BAR_DOORBELLS, BAR_REGISTERS};
use causeway_protocol::registers::{BAR0_BYTES, MAGIC, Register, doorbells::BAR4_BYTES};
use causeway_shim::pci::{
    self, BAR_FIRST, COMMAND, COMMAND_MASTER, COMMAND_MEMORY, CONFIG_ADDRESS, CONFIG_DATA,
    DeviceBars, PciAddress, Ports,
};
use causeway_shim::{Access, MemoryKind, Transport};

use crate::target::Target;

const PORTS: IoPorts = IoPorts;

fn offset(bar: usize) -> u8 {
    BAR_FIRST + 4 * bar as u8
}

pub fn attack(target: &mut Target) {
    let found = *target.transport.found();
    identity_is_fixed(target, found.function);
    sizes(target, &found);
    decoding_off(target, found.function);
    registers_elsewhere(target, &found);
    registers_over_something(target, &found);
    aperture_elsewhere(target, &found);
    odd_configuration_accesses(target, found.function);
    assert_eq!(target.transport.read_register(Register::Magic), MAGIC);
}

/// Checks that stores do not change the function's IDs and class.
fn identity_is_fixed(target: &mut Target, function: PciAddress) {
    for at in [0x00, 0x08, 0x2c] {
        let before = function.read(&PORTS, at);
        function.write(&PORTS, at, !before);
        assert_eq!(
            function.read(&PORTS, at),
            before,
            "configuration register {at:#x}"
        );
        target.survived();
    }
}

/// Sizes a BAR: stores all-ones and loads the mask. The device must be at its address again when
/// the address is restored.
fn sizes(target: &mut Target, found: &DeviceBars) {
    let function = found.function;
    let mut size = |bar: usize| {
        let before = function.read(&PORTS, offset(bar));
        function.write(&PORTS, offset(bar), u32::MAX);
        let mask = function.read(&PORTS, offset(bar));
        function.write(&PORTS, offset(bar), before);
        assert_eq!(function.read(&PORTS, offset(bar)), before);
        target.survived();
        mask
    };
    let registers = size(BAR_REGISTERS) & !0xf;
    let doorbells = size(BAR_DOORBELLS) & !0xf;
    let low = size(BAR_APERTURE) & !0xf;
    let high = size(BAR_APERTURE + 1);
    assert_eq!(u64::from(!registers) + 1, BAR0_BYTES);
    assert_eq!(u64::from(!doorbells) + 1, BAR4_BYTES);
    let aperture = (!(u64::from(high) << 32 | u64::from(low))).wrapping_add(1);
    assert_eq!(aperture, target.transport.aperture().bytes() as u64);
    assert_eq!(target.transport.read_register(Register::Magic), MAGIC);
}

/// Checks that the device does not answer while memory decoding is off, and answers again
/// afterwards.
fn decoding_off(target: &mut Target, function: PciAddress) {
    let command = function.read(&PORTS, COMMAND) & 0xffff;
    function.write(&PORTS, COMMAND, command & !COMMAND_MEMORY);
    assert_eq!(target.transport.read_register(Register::Magic), u32::MAX);
    function.write(&PORTS, COMMAND, u32::MAX);
    function.write(&PORTS, COMMAND, COMMAND_MEMORY | COMMAND_MASTER);
    assert_eq!(target.transport.read_register(Register::Magic), MAGIC);
    target.survived();
}

fn transport_at(target: &Target, found: DeviceBars) -> PciTransport {
    let control = target.transport.control_area().window;
    PciTransport::at(found, control).required("the device at another address")
}

/// Moves BAR 0, and checks that the device answers only at the new address.
fn registers_elsewhere(target: &mut Target, found: &DeviceBars) {
    let function = found.function;
    // Behind the functions of all GPUs that a VM can have.
    let address = found.registers + 0x800_0000;
    function.write(&PORTS, offset(BAR_REGISTERS), address as u32);
    let moved = transport_at(
        target,
        DeviceBars {
            registers: address,
            ..*found
        },
    );
    assert_eq!(moved.read_register(Register::Magic), MAGIC);
    assert_eq!(target.transport.read_register(Register::Magic), u32::MAX);
    function.write(&PORTS, offset(BAR_REGISTERS), found.registers as u32);
    assert_eq!(target.transport.read_register(Register::Magic), MAGIC);
    target.survived();
}

/// Moves BARs over RAM, over each other, to zero, and to the end of the address space.
fn registers_over_something(target: &mut Target, found: &DeviceBars) {
    let function = found.function;
    let page = target.machine.ram().window(4096).required("a page of RAM");
    page.store_u32(0, 0x5afe_5afe).required("in the page");
    let over_ram = page.as_ptr().as_ptr() as u32;
    for address in [
        over_ram,
        found.doorbells as u32,
        0,
        0xffff_f000,
        0xfee0_0000,
        0xfec0_0000,
    ] {
        function.write(&PORTS, offset(BAR_REGISTERS), address);
        assert_eq!(page.load_u32(0), Ok(0x5afe_5afe), "RAM must stay RAM");
        // The device may answer there or not; but every access must end.
        let mut word = [0; 4];
        target
            .transport
            .doorbells()
            .read(0, &mut word)
            .required("in the BAR");
        function.write(&PORTS, offset(BAR_REGISTERS), found.registers as u32);
        assert_eq!(
            target.transport.read_register(Register::Magic),
            MAGIC,
            "after {address:#x}"
        );
        target.survived();
    }
    function.write(&PORTS, offset(BAR_DOORBELLS), found.registers as u32);
    function.write(&PORTS, offset(BAR_DOORBELLS), found.doorbells as u32);
    for high in [0, u32::MAX, 0x8000_0000] {
        function.write(&PORTS, offset(BAR_APERTURE + 1), high);
        function.write(
            &PORTS,
            offset(BAR_APERTURE + 1),
            (found.aperture >> 32) as u32,
        );
        target.survived();
    }
    assert_eq!(target.transport.read_register(Register::Magic), MAGIC);
}

/// Checks that the aperture moves together with the mappings in it.
fn aperture_elsewhere(target: &mut Target, found: &DeviceBars) {
    let bytes = target.transport.aperture().bytes() as u64;
    // Its own size lower or higher; the guest's page tables end at 512 GiB, and the aperture of
    // another GPU is above this one.
    let up = found.aperture + bytes;
    let neighbour = pci::find_nth(&PORTS, 1).ok();
    let address = if neighbour.is_none() && up + bytes <= 512 << 30 {
        up
    } else {
        found.aperture - bytes
    };
    let function = found.function;
    {
        let device = Target::fresh(&target.transport);
        let memory = device.allocate(4096, MemoryKind::Host).required("a page");
        let mapping = memory
            .map_cpu(0, 4096, Access::ReadWrite)
            .required("mapping");
        mapping.store_u32(0, 0xfeed_f00d).required("in the page");
        function.write(&PORTS, offset(BAR_APERTURE + 1), (address >> 32) as u32);
        function.write(&PORTS, offset(BAR_APERTURE), address as u32);
        let moved = transport_at(
            target,
            DeviceBars {
                aperture: address,
                ..*found
            },
        );
        let at = mapping.aperture_offset() as usize;
        assert_eq!(
            moved.aperture().load_u32(at),
            Ok(0xfeed_f00d),
            "memory must move along"
        );
        moved
            .aperture()
            .store_u32(at, 0xcafe_f00d)
            .required("in the page");
        function.write(
            &PORTS,
            offset(BAR_APERTURE + 1),
            (found.aperture >> 32) as u32,
        );
        function.write(&PORTS, offset(BAR_APERTURE), found.aperture as u32);
        assert_eq!(mapping.load_u32(0), Ok(0xcafe_f00d), "and back");
        if let Some(neighbour) = neighbour {
            over_another_gpu(target, found, &neighbour);
            assert_eq!(mapping.load_u32(0), Ok(0xcafe_f00d), "and back again");
        }
    }
    target.survived();
}

/// Moves the BARs over those of another GPU. Either device may answer there; every access must end,
/// and both devices must work when the BARs are back.
fn over_another_gpu(target: &Target, found: &DeviceBars, neighbour: &DeviceBars) {
    let function = found.function;
    let moved = [
        (BAR_REGISTERS, found.registers, neighbour.registers),
        (BAR_DOORBELLS, found.doorbells, neighbour.doorbells),
        (
            BAR_APERTURE + 1,
            found.aperture >> 32,
            neighbour.aperture >> 32,
        ),
        (BAR_APERTURE, found.aperture, neighbour.aperture),
    ];
    let other = transport_at(target, *neighbour);
    for (bar, _, address) in moved {
        function.write(&PORTS, offset(bar), address as u32);
        let _ = other.read_register(Register::Magic);
        let _ = other.aperture().load_u32(0);
    }
    for (bar, address, _) in moved {
        function.write(&PORTS, offset(bar), address as u32);
    }
    assert_eq!(target.transport.read_register(Register::Magic), MAGIC);
    assert_eq!(other.read_register(Register::Magic), MAGIC, "the other GPU");
}

/// Accesses bytes and words, functions that do not exist, and overwrites every register of the
/// function.
fn odd_configuration_accesses(target: &mut Target, function: PciAddress) {
    PORTS.write(CONFIG_ADDRESS, 1 << 31 | u32::from(function.device) << 11);
    let vendor = [0, 1].map(|i| PORTS.read_byte(CONFIG_DATA + i));
    assert_eq!(vendor, causeway_protocol::pci::VENDOR_ID.to_le_bytes());
    PORTS.write_byte(CONFIG_DATA + 1, 0);
    PORTS.write_byte(CONFIG_ADDRESS + 1, 0xff);
    for device in 0..32 {
        for absent in 1..8 {
            let absent = PciAddress {
                device,
                function: absent,
            };
            assert_eq!(absent.read(&PORTS, 0), u32::MAX, "an absent function");
            absent.write(&PORTS, 0x10, 0);
        }
    }
    target.survived();
    for at in (0x40..=0xfc).step_by(4) {
        let before = function.read(&PORTS, at);
        function.write(&PORTS, at, u32::MAX);
        function.write(&PORTS, at, before);
    }
    target.survived();
}
