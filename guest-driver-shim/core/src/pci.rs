//! Finding the device by PCI configuration mechanism #1 (PCI Local Bus Specification 3.0,
//! 3.2.2.3.2).

use causeway_protocol::pci::{BAR_APERTURE, BAR_DOORBELLS, BAR_REGISTERS, DEVICE_ID, VENDOR_ID};

/// I/O port that selects the configuration register to access (PCI Local Bus Specification 3.0,
/// 3.2.2.3.2).
pub const CONFIG_ADDRESS: u16 = 0xcf8;
/// I/O port through which the configuration register that [`CONFIG_ADDRESS`] selects is read and
/// written.
pub const CONFIG_DATA: u16 = 0xcfc;

/// Offset of the command register in configuration space.
pub const COMMAND: u8 = 0x04;
/// Bit of the command register that makes the function answer accesses to its memory BARs.
pub const COMMAND_MEMORY: u32 = 1 << 1;
/// Bit of the command register that lets the function access memory by itself (DMA).
pub const COMMAND_MASTER: u32 = 1 << 2;
/// Offset of the first base address register (BAR 0) in configuration space.
pub const BAR_FIRST: u8 = 0x10;

/// Loads and stores of 32 bits at x86 I/O ports.
pub trait Ports {
    /// Loads 32 bits from a port.
    fn read(&self, port: u16) -> u32;
    /// Stores 32 bits to a port.
    fn write(&self, port: u16, value: u32);
}

/// Address of a PCI function on bus 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciAddress {
    /// Device number, below 32.
    pub device: u8,
    /// Function number, below 8.
    pub function: u8,
}

impl PciAddress {
    const fn register(self, offset: u8) -> u32 {
        1 << 31 | (self.device as u32) << 11 | (self.function as u32) << 8 | (offset & 0xfc) as u32
    }

    /// Reads the configuration register at `offset`, a multiple of 4.
    pub fn read(self, ports: &impl Ports, offset: u8) -> u32 {
        ports.write(CONFIG_ADDRESS, self.register(offset));
        ports.read(CONFIG_DATA)
    }

    /// Writes the configuration register at `offset`, a multiple of 4.
    pub fn write(self, ports: &impl Ports, offset: u8, value: u32) {
        ports.write(CONFIG_ADDRESS, self.register(offset));
        ports.write(CONFIG_DATA, value);
    }

    /// Returns the memory address in BAR number `bar`, or `None` if the BAR is for I/O ports. The
    /// upper half of a 64-bit address is in the register of the next BAR.
    pub fn bar(self, ports: &impl Ports, bar: usize) -> Option<u64> {
        let offset = BAR_FIRST + 4 * bar as u8;
        let low = self.read(ports, offset);
        match low & 0b111 {
            0b000 => Some(u64::from(low & !0xf)),
            0b100 => {
                let high = self.read(ports, offset + 4);
                Some(u64::from(high) << 32 | u64::from(low & !0xf))
            }
            _ => None,
        }
    }
}

/// Where the Causeway function is on the PCI bus, and the addresses in its BARs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBars {
    /// Address of the function on the PCI bus.
    pub function: PciAddress,
    /// Guest-physical address of BAR 0, the registers.
    pub registers: u64,
    /// Guest-physical address of BAR 2, the aperture.
    pub aperture: u64,
    /// Guest-physical address of BAR 4, the doorbells.
    pub doorbells: u64,
}

/// Why no usable Causeway function was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// Bus 0 has no Causeway function.
    #[error("no Causeway device: PCI bus 0 has no function {VENDOR_ID:04x}:{DEVICE_ID:04x}")]
    Absent,
    /// The firmware has assigned no address to a BAR, or the BAR is for I/O.
    #[error("BAR {bar} of the Causeway device has no address: the firmware assigned none")]
    BarUnset {
        /// Number of the BAR.
        bar: usize,
    },
}

/// Finds the first Causeway function on PCI bus 0, and enables it to answer accesses to its BARs and to
/// access memory.
///
/// # Errors
/// [`FindError::Absent`] if bus 0 has no such function; [`FindError::BarUnset`] if a BAR has no
/// address.
pub fn find(ports: &impl Ports) -> Result<DeviceBars, FindError> {
    find_nth(ports, 0)
}

/// As [`find`], but finds the function of GPU number `gpu` of this machine, counted from 0. The
/// functions are in the order of their device numbers.
///
/// # Errors
/// As for [`find`]; [`FindError::Absent`] if there are no more than `gpu` functions.
pub fn find_nth(ports: &impl Ports, gpu: usize) -> Result<DeviceBars, FindError> {
    let id = u32::from(DEVICE_ID) << 16 | u32::from(VENDOR_ID);
    let function = (0..32)
        .map(|device| PciAddress {
            device,
            function: 0,
        })
        .filter(|function| function.read(ports, 0) == id)
        .nth(gpu)
        .ok_or(FindError::Absent)?;
    let base = |bar| match function.bar(ports, bar) {
        Some(address) if address != 0 => Ok(address),
        _ => Err(FindError::BarUnset { bar }),
    };
    let found = DeviceBars {
        function,
        registers: base(BAR_REGISTERS)?,
        aperture: base(BAR_APERTURE)?,
        doorbells: base(BAR_DOORBELLS)?,
    };
    // The upper half is status, where a stored one clears: keep it out.
    let command = function.read(ports, COMMAND) & 0xffff;
    let wanted = command | COMMAND_MEMORY | COMMAND_MASTER;
    if wanted != command {
        function.write(ports, COMMAND, wanted);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// Configuration space of one function, at device 3.
    struct OneFunction {
        address: Cell<u32>,
        space: RefCell<[u32; 64]>,
    }

    fn bus() -> OneFunction {
        let mut space = [0; 64];
        space[0] = 0x0001_ca57;
        space[1] = 0xffff_0000;
        space[4] = 0xe000_0000;
        space[6] = 0x0000_000c;
        space[7] = 0x40;
        space[8] = 0xe020_0000;
        OneFunction {
            address: Cell::new(0),
            space: RefCell::new(space),
        }
    }

    impl Ports for OneFunction {
        fn read(&self, port: u16) -> u32 {
            assert_eq!(port, CONFIG_DATA);
            let address = self.address.get();
            if address >> 11 == (1 << 31 | 3 << 11) >> 11 {
                self.space.borrow()[(address & 0xfc) as usize / 4]
            } else {
                u32::MAX
            }
        }
        fn write(&self, port: u16, value: u32) {
            match port {
                CONFIG_ADDRESS => self.address.set(value),
                _ => self.space.borrow_mut()[(self.address.get() & 0xfc) as usize / 4] = value,
            }
        }
    }

    #[test]
    fn the_function_is_found_and_its_memory_decoding_enabled() {
        let bus = bus();
        let found = find(&bus).unwrap();
        assert_eq!(
            found.function,
            PciAddress {
                device: 3,
                function: 0
            }
        );
        assert_eq!(found.registers, 0xe000_0000);
        assert_eq!(found.aperture, 0x40_0000_0000);
        assert_eq!(found.doorbells, 0xe020_0000);
        let command = bus.space.borrow()[1];
        assert_eq!(
            command,
            COMMAND_MEMORY | COMMAND_MASTER,
            "status bits must not be stored"
        );
    }

    #[test]
    fn an_empty_bus_and_an_unset_bar_are_told_apart() {
        let empty = bus();
        empty.space.borrow_mut()[0] = u32::MAX;
        assert_eq!(find(&empty), Err(FindError::Absent));
        let unset = bus();
        unset.space.borrow_mut()[7] = 0;
        assert_eq!(find(&unset), Err(FindError::BarUnset { bar: 2 }));
    }
}
