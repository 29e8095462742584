//! Uses a PCI function that is passed through to a guest without firmware or operating system.

use causeway_bare::{IoPorts, device_memory};
use causeway_shim::Window;
use causeway_shim::pci::{COMMAND, COMMAND_MASTER, COMMAND_MEMORY, PciAddress};

/// Bit of the status register, which is the upper half of the command register's word: the function
/// has capabilities (PCI Local Bus Specification 3.0, 6.2.3).
const HAS_CAPABILITIES: u32 = 1 << 20;
/// Offset of the register with the offset of the first capability.
const CAPABILITIES: u8 = 0x34;
/// Most capabilities that fit into configuration space.
const CAPABILITIES_MAX: usize = 48;

/// ID of the capability for MSI (message signaled interrupts; ibid., 6.8.1).
const MSI: u8 = 0x05;
/// Bits of the capability's first word: MSI is enabled; addresses have 64 bits.
const MSI_ENABLE: u32 = 1 << 16;
const MSI_64_BIT: u32 = 1 << 23;
/// Field with the number of enabled messages; 0 in it means one message.
const MSI_COUNT: u32 = 0b111 << 20;

/// ID of the capability for MSI-X, which has a table of messages (ibid., 6.8.2).
const MSIX: u8 = 0x11;
/// Fields of the capability's first word: MSI-X is enabled; the number of entries minus one.
const MSIX_ENABLE: u32 = 1 << 31;
const MSIX_COUNT_SHIFT: u32 = 16;
const MSIX_COUNT: u32 = 0x7ff;
/// Field of the words that locate a table: the number of the BAR.
const MSIX_BAR: u32 = 0b111;
/// Size of an entry of the table in bytes, and offsets in an entry.
const ENTRY_BYTES: usize = 16;
const ENTRY_ADDRESS_HIGH: usize = 4;
const ENTRY_DATA: usize = 8;
const ENTRY_CONTROL: usize = 12;
const ENTRY_MASKED: u32 = 1;

/// A PCI function on bus 0.
#[derive(Clone, Copy, Debug)]
pub struct PciFunction(PciAddress);

impl PciFunction {
    /// Finds the function with this vendor and device ID on bus 0; `None` if the bus has none.
    pub fn find((vendor, device): (u16, u16)) -> Option<Self> {
        let id = u32::from(device) << 16 | u32::from(vendor);
        let functions = (0..32).map(|device| PciAddress {
            device,
            function: 0,
        });
        let mut functions = functions.filter(|function| function.read(&IoPorts, 0) == id);
        functions.next().map(Self)
    }

    /// Enables the function's memory and its DMA, and returns the address of BAR number `bar`.
    pub fn enable(&self, bar: usize) -> Option<u64> {
        let address = self.0.bar(&IoPorts, bar).filter(|address| *address != 0);
        let command = self.0.read(&IoPorts, COMMAND) & 0xffff;
        let wanted = command | COMMAND_MEMORY | COMMAND_MASTER;
        self.0.write(&IoPorts, COMMAND, wanted);
        address
    }

    /// Enables MSI: each interrupt of the function is then this message.
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

    /// Enables MSI-X with all entries masked, and returns the table.
    pub fn use_table(&self) -> Option<MessageTable> {
        let at = self.capability(MSIX)?;
        let first = self.0.read(&IoPorts, at);
        let count = (first >> MSIX_COUNT_SHIFT & MSIX_COUNT) as usize + 1;
        let place = |offset, bytes: usize| {
            let word = self.0.read(&IoPorts, offset);
            let base = self.0.bar(&IoPorts, (word & MSIX_BAR) as usize)?;
            device_memory(base + u64::from(word & !MSIX_BAR), bytes as u64)
        };
        let table = MessageTable {
            entries: place(at + 4, ENTRY_BYTES * count)?,
            pending: place(at + 8, 8 * count.div_ceil(64))?,
            count,
        };
        (0..count).try_for_each(|index| table.mask(index))?;
        self.0.write(&IoPorts, at, first | MSIX_ENABLE);
        Some(table)
    }

    /// Returns the offset of a capability in configuration space; `None` if the function lacks it.
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

/// The MSI-X table of a function. Its methods return `None` for entries that the table does not
/// have.
#[derive(Clone, Copy, Debug)]
pub struct MessageTable {
    entries: Window,
    pending: Window,
    count: usize,
}

impl MessageTable {
    /// Returns the number of entries.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Sets the message that an entry sends.
    pub fn set(&self, index: usize, address: u32, data: u32) -> Option<()> {
        let at = ENTRY_BYTES * index;
        self.entries.store_u32(at, address).ok()?;
        self.entries.store_u32(at + ENTRY_ADDRESS_HIGH, 0).ok()?;
        self.entries.store_u32(at + ENTRY_DATA, data).ok()
    }

    /// Masks an entry, so that it does not send its message.
    pub fn mask(&self, index: usize) -> Option<()> {
        let at = ENTRY_BYTES * index + ENTRY_CONTROL;
        self.entries.store_u32(at, ENTRY_MASKED).ok()
    }

    /// Unmasks an entry. A pending message is sent at once.
    pub fn unmask(&self, index: usize) -> Option<()> {
        let at = ENTRY_BYTES * index + ENTRY_CONTROL;
        self.entries.store_u32(at, 0).ok()
    }

    /// Returns whether a masked entry has a message to send.
    pub fn is_pending(&self, index: usize) -> Option<bool> {
        let bits = self.pending.load_u32(4 * (index / 32)).ok()?;
        Some(bits & 1 << (index % 32) != 0)
    }
}
