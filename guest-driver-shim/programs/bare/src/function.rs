//! A PCI function that is passed through, without firmware or operating system.

use causeway_bare::{IoPorts, device_memory};
use causeway_shim::Window;
use causeway_shim::pci::{COMMAND, COMMAND_MASTER, COMMAND_MEMORY, PciAddress};

/// Status bit: there are capabilities (PCI Local Bus Specification 3.0, 6.2.3), in the upper half
/// of the word of the command.
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

/// Capability of tables of messages (ibid., 6.8.2).
const MSIX: u8 = 0x11;
/// Of its first word: on; how many entries there are, less one.
const MSIX_ENABLE: u32 = 1 << 31;
const MSIX_COUNT_SHIFT: u32 = 16;
const MSIX_COUNT: u32 = 0x7ff;
/// Of the words that say where something is: which BAR.
const MSIX_BAR: u32 = 0b111;
/// Bytes of an entry, and offsets in it.
const ENTRY_BYTES: usize = 16;
const ENTRY_ADDRESS_HIGH: usize = 4;
const ENTRY_DATA: usize = 8;
const ENTRY_CONTROL: usize = 12;
const ENTRY_MASKED: u32 = 1;

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct PciFunction(PciAddress);

impl PciFunction {
    /// Returns the function with these IDs on bus 0.
    pub fn find((vendor, device): (u16, u16)) -> Option<Self> {
        let id = u32::from(device) << 16 | u32::from(vendor);
        let functions = (0..32).map(|device| PciAddress {
            device,
            function: 0,
        });
        let mut functions = functions.filter(|function| function.read(&IoPorts, 0) == id);
        functions.next().map(Self)
    }

    /// Enables memory decoding and bus mastering, and returns the address of a BAR.
    pub fn enable(&self, bar: usize) -> Option<u64> {
        let address = self.0.bar(&IoPorts, bar).filter(|address| *address != 0);
        let command = self.0.read(&IoPorts, COMMAND) & 0xffff;
        let wanted = command | COMMAND_MEMORY | COMMAND_MASTER;
        self.0.write(&IoPorts, COMMAND, wanted);
        address
    }

    /// Enables MSI with this message.
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

    /// Returns the offset of a capability.
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

/// An MSI-X table. Its methods return `None` for entries that it does not have.
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

    /// Sets the message of an entry.
    pub fn set(&self, index: usize, address: u32, data: u32) -> Option<()> {
        let at = ENTRY_BYTES * index;
        self.entries.store_u32(at, address).ok()?;
        self.entries.store_u32(at + ENTRY_ADDRESS_HIGH, 0).ok()?;
        self.entries.store_u32(at + ENTRY_DATA, data).ok()
    }

    /// Masks an entry.
    pub fn mask(&self, index: usize) -> Option<()> {
        let at = ENTRY_BYTES * index + ENTRY_CONTROL;
        self.entries.store_u32(at, ENTRY_MASKED).ok()
    }

    /// Unmasks an entry. A pending message is sent at once.
    pub fn unmask(&self, index: usize) -> Option<()> {
        let at = ENTRY_BYTES * index + ENTRY_CONTROL;
        self.entries.store_u32(at, 0).ok()
    }

    /// Returns whether an entry is pending.
    pub fn is_pending(&self, index: usize) -> Option<bool> {
        let bits = self.pending.load_u32(4 * (index / 32)).ok()?;
        Some(bits & 1 << (index % 32) != 0)
    }
}
