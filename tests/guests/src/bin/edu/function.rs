//! The PCI function that is passed through, without firmware or operating system.

use causeway_bare::IoPorts;
use causeway_shim::pci::{COMMAND, COMMAND_MASTER, COMMAND_MEMORY, FunctionAddress};

/// Status bit: there are capabilities (PCI Local Bus Specification 3.0, 6.2.3), in the upper half of the word of the command.
const HAS_CAPABILITIES: u32 = 1 << 20;
/// Offset of the first capability's offset.
const CAPABILITIES: u8 = 0x34;
/// Most capabilities that there is room for.
const CAPABILITIES_MAX: usize = 48;

/// Capability of messages as interrupts (ibid., 6.8.1).
const MSI: u8 = 0x05;
/// Of its first word: on, and addresses of 64 bits.
const MSI_ENABLE: u32 = 1 << 16;
const MSI_64_BIT: u32 = 1 << 23;
/// How many messages are on, which is to be one.
const MSI_COUNT: u32 = 0b111 << 20;

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct Function(FunctionAddress);

impl Function {
    /// The function with these IDs, on bus 0.
    pub fn find((vendor, device): (u16, u16)) -> Option<Self> {
        let id = u32::from(device) << 16 | u32::from(vendor);
        let functions = (0..32).map(|device| FunctionAddress {
            device,
            function: 0,
        });
        let mut functions = functions.filter(|function| function.read(&IoPorts, 0) == id);
        functions.next().map(Self)
    }

    /// Has it decode its addresses and use memory, and gives the address of a BAR.
    pub fn enable(&self, bar: usize) -> Option<u64> {
        let address = self.0.bar(&IoPorts, bar).filter(|address| *address != 0);
        let command = self.0.read(&IoPorts, COMMAND) & 0xffff;
        let wanted = command | COMMAND_MEMORY | COMMAND_MASTER;
        self.0.write(&IoPorts, COMMAND, wanted);
        address
    }

    /// Has it interrupt by this message.
    pub fn send_messages(&self, address: u32, data: u32) -> Option<()> {
        let at = self.capability(MSI)?;
        let first = self.0.read(&IoPorts, at) & !(MSI_ENABLE | MSI_COUNT);
        self.0.write(&IoPorts, at, first);
        self.0.write(&IoPorts, at + 4, address);
        let data_at = if first & MSI_64_BIT != 0 {
            self.0.write(&IoPorts, at + 8, 0);
            at + 12
        } else {
            at + 8
        };
        // The upper half is reserved, or the next register.
        let beside = self.0.read(&IoPorts, data_at) & 0xffff_0000;
        self.0.write(&IoPorts, data_at, beside | data & 0xffff);
        self.0.write(&IoPorts, at, first | MSI_ENABLE);
        Some(())
    }

    /// Offset of a capability.
    fn capability(&self, id: u8) -> Option<u8> {
        if self.0.read(&IoPorts, COMMAND) & HAS_CAPABILITIES == 0 {
            return None;
        }
        let mut at = self.0.read(&IoPorts, CAPABILITIES) as u8 & 0xfc;
        for _ in 0..CAPABILITIES_MAX {
            if at == 0 {
                break;
            }
            let head = self.0.read(&IoPorts, at);
            if head as u8 == id {
                return Some(at);
            }
            at = (head >> 8) as u8 & 0xfc;
        }
        None
    }
}
