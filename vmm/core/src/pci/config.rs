//! Configuration space of a type 0 function, as a table of values and of bits that the guest can
//! write.
//!
//! Offsets and bits are those of the PCI Local Bus Specification 3.0, chapter 6.

use std::ops::Range;

/// Bit 1 of the command register: the function answers accesses to its memory BARs.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Bit 2 of the command register: the function may access memory, which includes sending
/// message-signalled interrupts.
pub const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Bit 10 of the command register: the function must not assert its interrupt pin.
pub const COMMAND_INTX_DISABLE: u16 = 1 << 10;
/// Bit 3 of the status register: the function has an interrupt for its pin, disabled or not.
const STATUS_INTERRUPT: u16 = 1 << 3;
/// Bit 4 of the status register: the function has a list of capabilities.
const STATUS_CAPABILITIES: u16 = 1 << 4;

const OFFSET_VENDOR: usize = 0x00;
const OFFSET_COMMAND: usize = 0x04;
const OFFSET_STATUS: usize = 0x06;
const OFFSET_REVISION: usize = 0x08;
const OFFSET_BARS: usize = 0x10;
const OFFSET_SUBSYSTEM: usize = 0x2c;
const OFFSET_CAPABILITIES: usize = 0x34;
const OFFSET_INTERRUPT_LINE: usize = 0x3c;
const OFFSET_INTERRUPT_PIN: usize = 0x3d;
/// First capability: behind the header.
const OFFSET_FIRST_CAPABILITY: usize = 0x40;

/// Base address register bits 2:1: the register is 64 bits wide.
const BAR_64_BIT: u32 = 0b10 << 1;
/// Base address register bit 3: reads have no side effects.
const BAR_PREFETCHABLE: u32 = 1 << 3;
/// Bits of a memory base address register that are not address.
const BAR_FLAGS: u64 = 0xf;

/// Capability ID of MSI-X.
const CAPABILITY_MSIX: u8 = 0x11;
/// MSI-X message control bits that software writes: enable and function mask.
const MSIX_CONTROL_WRITABLE: u16 = 0xc000;

/// IDs and class of a PCI function, which its configuration space shows.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Vendor ID, also used as the subsystem vendor ID.
    pub vendor: u16,
    /// Device ID, also used as the subsystem ID.
    pub device: u16,
    /// Revision ID.
    pub revision: u8,
    /// Base class code.
    pub class: u8,
    /// Subclass code.
    pub subclass: u8,
}

/// Number, size and type of a memory BAR (base address register).
#[derive(Clone, Copy, Debug)]
pub struct MemoryBar {
    /// Number of the BAR, 0 to 5. A BAR with a 64-bit address also takes the next number.
    pub index: usize,
    /// Size of the BAR in bytes: a power of two, at least 16. It must be smaller than 4 GiB unless
    /// the BAR has a 64-bit address.
    pub bytes: u64,
    /// Whether the BAR has a 64-bit address, which takes two registers.
    pub wide: bool,
    /// Whether the BAR is prefetchable: loads from it have no side effects.
    pub prefetchable: bool,
}

/// Content of an MSI-X capability: the number of vectors, and where the MSI-X table and pending
/// bits are.
#[derive(Clone, Copy, Debug)]
pub struct MsixCapability {
    /// Number of vectors, 1 to 2048.
    pub vectors: u16,
    /// Number of the BAR that contains the table and the pending bits.
    pub bar: u8,
    /// Offset of the MSI-X table in the BAR; a multiple of 8.
    pub table: u32,
    /// Offset of the pending bits in the BAR; a multiple of 8.
    pub pending: u32,
}

/// The 256 bytes of a PCI function's configuration space, and which of their bits the guest can
/// change.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    value: [u8; 256],
    writable: [u8; 256],
    /// Where the next capability goes.
    capabilities_end: usize,
    /// Offset of the link that is to point to it.
    last_link: usize,
}

impl ConfigSpace {
    /// Returns the configuration space of a function with `identity`. It has no BARs, capabilities
    /// or interrupt pin yet.
    pub fn new(identity: Identity) -> Self {
        let mut space = Self::blank();
        space.set_u16(OFFSET_VENDOR, identity.vendor, 0);
        space.set_u16(OFFSET_VENDOR + 2, identity.device, 0);
        let command = COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_INTX_DISABLE;
        space.set_u16(OFFSET_COMMAND, 0, command);
        space.value[OFFSET_REVISION] = identity.revision;
        space.value[OFFSET_REVISION + 2] = identity.subclass;
        space.value[OFFSET_REVISION + 3] = identity.class;
        space.set_u16(OFFSET_SUBSYSTEM, identity.vendor, 0);
        space.set_u16(OFFSET_SUBSYSTEM + 2, identity.device, 0);
        space
    }

    /// Returns a configuration space in which all bits are zero and the guest can change none.
    pub fn blank() -> Self {
        Self {
            value: [0; 256],
            writable: [0; 256],
            capabilities_end: OFFSET_FIRST_CAPABILITY,
            last_link: OFFSET_CAPABILITIES,
        }
    }

    /// Sets the bits `mask` of the 16-bit word at `offset` (below 255) to the corresponding bits of
    /// `value`. `writable` says whether the guest can change these bits.
    pub fn define_u16(&mut self, offset: usize, mask: u16, value: u16, writable: bool) {
        let others = self.u16(offset) & !mask;
        let fixed = self.writable_u16(offset) & !mask;
        let changing = if writable { mask } else { 0 };
        self.set_u16(offset, others | value & mask, fixed | changing);
    }

    /// Adds `bar` at guest-physical `address`. The guest can change only those address bits that
    /// the BAR's size leaves free; by trying to set the others it learns the size.
    pub fn add_bar(&mut self, bar: MemoryBar, address: u64) {
        debug_assert!(bar.bytes.is_power_of_two() && bar.bytes > BAR_FLAGS);
        let mask = !(bar.bytes - 1);
        let width = if bar.wide { BAR_64_BIT } else { 0 };
        let flags = width
            | if bar.prefetchable {
                BAR_PREFETCHABLE
            } else {
                0
            };
        let offset = OFFSET_BARS + 4 * bar.index;
        self.set_u32(offset, address as u32 & mask as u32 | flags, mask as u32);
        if bar.wide {
            let high = ((address & mask) >> 32) as u32;
            self.set_u32(offset + 4, high, (mask >> 32) as u32);
        }
    }

    /// Adds an MSI-X capability. MSI-X is disabled until the guest enables it. Returns the
    /// capability's offset in configuration space.
    pub fn add_msix(&mut self, msix: MsixCapability) -> usize {
        let mut body = [0; 10];
        body[..2].copy_from_slice(&(msix.vectors - 1).to_le_bytes());
        body[2..6].copy_from_slice(&(msix.table | u32::from(msix.bar)).to_le_bytes());
        body[6..].copy_from_slice(&(msix.pending | u32::from(msix.bar)).to_le_bytes());
        let offset = self.add_capability(CAPABILITY_MSIX, &body);
        self.set_writable_u16(offset + 2, MSIX_CONTROL_WRITABLE);
        offset
    }

    /// Adds a capability with ID `id` that the guest cannot change. `body` follows the ID and the
    /// pointer to the next capability. Returns the capability's offset in configuration space.
    ///
    /// # Panics
    /// If the space has no room for the capability. No guest can cause that.
    pub fn add_capability(&mut self, id: u8, body: &[u8]) -> usize {
        let offset = self.capabilities_end;
        let end = offset + 2 + body.len();
        self.value[offset] = id;
        self.value[offset + 2..end].copy_from_slice(body);
        self.value[self.last_link] = offset as u8;
        self.set_status(STATUS_CAPABILITIES, true);
        self.last_link = offset + 1;
        self.capabilities_end = end.next_multiple_of(4);
        offset
    }

    /// Lets the guest change `bits` of the 16-bit word at `offset` (below 255), in addition to
    /// those it can already change.
    pub fn set_writable_u16(&mut self, offset: usize, bits: u16) {
        for (mask, new) in self.writable[offset..].iter_mut().zip(bits.to_le_bytes()) {
            *mask |= new;
        }
    }

    /// Fills `into` with the bytes from `offset` on, or with all-ones if they do not all lie in
    /// configuration space.
    pub fn read(&self, offset: u8, into: &mut [u8]) {
        let range = Self::range(offset, into.len());
        match self.value.get(range) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => into.fill(0xff),
        }
    }

    /// Carries out a guest's store of `from` at `offset`: changes only the bits that the guest can
    /// change. Does nothing if the bytes do not all lie in configuration space.
    pub fn write(&mut self, offset: u8, from: &[u8]) {
        let range = Self::range(offset, from.len());
        let (Some(value), Some(mask)) =
            (self.value.get_mut(range.clone()), self.writable.get(range))
        else {
            return;
        };
        for ((value, mask), new) in value.iter_mut().zip(mask).zip(from) {
            *value = *value & !mask | new & mask;
        }
    }

    /// Returns the value of the command register.
    pub fn command(&self) -> u16 {
        self.u16(OFFSET_COMMAND)
    }

    /// Stores `command` to the command register, as firmware does before the guest runs. Bits that
    /// the guest cannot change keep their values.
    pub fn set_command(&mut self, command: u16) {
        self.write(OFFSET_COMMAND as u8, &command.to_le_bytes());
    }

    /// Gives the function interrupt pin `pin` (1 for INTA# … 4 for INTD#). The guest reads `line`
    /// from the interrupt line register; it may store another number there, which has no effect.
    pub fn set_interrupt_pin(&mut self, pin: u8, line: u8) {
        self.value[OFFSET_INTERRUPT_PIN] = pin;
        self.value[OFFSET_INTERRUPT_LINE] = line;
        self.writable[OFFSET_INTERRUPT_LINE] = 0xff;
    }

    /// Returns whether the command register lets the function assert its interrupt pin.
    pub fn is_interrupt_pin_enabled(&self) -> bool {
        self.command() & COMMAND_INTX_DISABLE == 0
    }

    /// Sets the interrupt bit of the status register to `pending`: whether the function has an
    /// interrupt to signal by its pin. Returns whether the function may assert the pin now: if
    /// `pending` is true and the command register allows the pin.
    pub fn set_interrupt_pending(&mut self, pending: bool) -> bool {
        self.set_status(STATUS_INTERRUPT, pending);
        pending && self.is_interrupt_pin_enabled()
    }

    fn set_status(&mut self, bits: u16, on: bool) {
        let others = self.u16(OFFSET_STATUS) & !bits;
        self.set_u16(OFFSET_STATUS, if on { others | bits } else { others }, 0);
    }

    /// Returns the guest-physical address that `bar` contains, even if the command register
    /// disables memory accesses.
    pub fn bar_address(&self, bar: MemoryBar) -> u64 {
        let offset = OFFSET_BARS + 4 * bar.index;
        let low = u64::from(self.u32(offset)) & !BAR_FLAGS;
        match bar.wide {
            true => low | u64::from(self.u32(offset + 4)) << 32,
            false => low,
        }
    }

    /// Returns the message control register of the MSI-X capability at `offset`, which
    /// [`Self::add_msix`] returned. [`super::MsixTable::set_control`] takes this value.
    pub fn msix_control(&self, offset: usize) -> u16 {
        self.u16(offset + 2)
    }

    fn range(offset: u8, bytes: usize) -> Range<usize> {
        let start = usize::from(offset);
        start..start.saturating_add(bytes)
    }

    /// Returns the 16-bit word at `offset` of the space. `offset` must be below 255.
    pub fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.value[offset], self.value[offset + 1]])
    }

    fn writable_u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.writable[offset], self.writable[offset + 1]])
    }

    /// Returns the 32-bit word at `offset` of the space. `offset` must be below 253.
    pub fn u32(&self, offset: usize) -> u32 {
        u32::from(self.u16(offset)) | u32::from(self.u16(offset + 2)) << 16
    }

    fn set_u16(&mut self, offset: usize, value: u16, writable: u16) {
        self.value[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[offset..offset + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn set_u32(&mut self, offset: usize, value: u32, writable: u32) {
        self.value[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[offset..offset + 4].copy_from_slice(&writable.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: MemoryBar = MemoryBar {
        index: 2,
        bytes: 64 << 30,
        wide: true,
        prefetchable: true,
    };
    const NARROW: MemoryBar = MemoryBar {
        index: 0,
        bytes: 4096,
        wide: false,
        prefetchable: false,
    };

    fn space() -> ConfigSpace {
        let mut space = ConfigSpace::new(Identity {
            vendor: 0x1234,
            device: 0x5678,
            revision: 1,
            class: 0x12,
            subclass: 0,
        });
        space.add_bar(NARROW, 0xe000_0000);
        space.add_bar(WIDE, 256 << 30);
        space.add_msix(MsixCapability {
            vectors: 32,
            bar: 4,
            table: 0,
            pending: 0x1000,
        });
        space
    }

    fn dword(space: &ConfigSpace, offset: u8) -> u32 {
        let mut bytes = [0; 4];
        space.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn identity_is_where_the_specification_has_it_and_read_only() {
        let mut space = space();
        space.write(0, &[0; 4]);
        space.write(8, &[0; 4]);
        assert_eq!(dword(&space, 0), 0x5678_1234);
        assert_eq!(dword(&space, 8), 0x1200_0001);
        assert_eq!(dword(&space, 0x2c), 0x5678_1234);
    }

    #[test]
    fn a_bar_is_sized_by_writing_all_ones() {
        let mut space = space();
        for offset in [0x10, 0x14, 0x18, 0x1c] {
            space.write(offset, &[0xff; 4]);
        }
        assert_eq!(dword(&space, 0x10), 0xffff_f000);
        assert_eq!(dword(&space, 0x14), 0, "no such register");
        assert_eq!(
            dword(&space, 0x18),
            0xc,
            "64-bit, prefetchable; size is above 4 GiB"
        );
        assert_eq!(dword(&space, 0x1c), 0xffff_fff0);
    }

    #[test]
    fn bars_move_by_whole_and_partial_stores() {
        let mut space = space();
        assert_eq!(space.bar_address(WIDE), 256 << 30);
        space.write(0x1c, &0x50u32.to_le_bytes());
        assert_eq!(space.bar_address(WIDE), 0x50 << 32);
        space.write(0x12, &[0x10, 0xe0]);
        assert_eq!(space.bar_address(NARROW), 0xe010_0000);
    }

    #[test]
    fn only_the_implemented_command_bits_stick() {
        let mut space = space();
        assert_eq!(space.command(), 0);
        space.write(4, &[0xff, 0xff]);
        assert_eq!(space.command(), 0x0406);
        space.set_command(COMMAND_MEMORY);
        assert_eq!(space.command(), COMMAND_MEMORY);
    }

    #[test]
    fn the_capability_list_ends_with_msix() {
        let mut space = space();
        assert_eq!(dword(&space, 4) >> 16 & 0x10, 0x10);
        let mut at = [0];
        space.read(0x34, &mut at);
        assert_eq!(dword(&space, at[0]), 31 << 16 | 0x11);
        assert_eq!(dword(&space, at[0] + 4), 4);
        assert_eq!(dword(&space, at[0] + 8), 0x1004);
        space.write(at[0], &[0xff; 4]);
        assert_eq!(dword(&space, at[0]), 0xc01f_0011);
        assert_eq!(space.msix_control(at[0].into()), 0xc01f);
    }

    #[test]
    fn capabilities_are_linked_in_the_order_in_which_they_were_added() {
        let mut space = space();
        let second = space.add_capability(9, &[0x10, 1, 2]);
        let third = space.add_capability(9, &[0x14; 18]);
        assert_eq!((second, third), (0x4c, 0x54));
        assert_eq!(dword(&space, 0x34), 0x40);
        assert_eq!(dword(&space, 0x40) >> 8 & 0xff, 0x4c);
        assert_eq!(dword(&space, 0x4c), 0x0110_5409);
        assert_eq!(dword(&space, 0x54), 0x1414_0009, "the last links nowhere");
        space.set_writable_u16(0x64, 0xff00);
        space.write(0x64, &[0xff; 4]);
        assert_eq!(dword(&space, 0x64), 0x1414_ff14);
    }

    #[test]
    fn an_interrupt_shows_in_the_status_and_the_pin_follows_unless_disabled() {
        let mut space = space();
        space.set_interrupt_pin(1, 17);
        assert_eq!(dword(&space, 0x3c), 0x0111);
        space.write(0x3c, &[5, 9]);
        assert_eq!(dword(&space, 0x3c), 0x0105, "the pin is read-only");
        assert!(space.set_interrupt_pending(true));
        assert_eq!(dword(&space, 4) >> 16, 0x18);
        space.set_command(COMMAND_INTX_DISABLE);
        assert!(!space.set_interrupt_pending(true));
        assert_eq!(dword(&space, 4) >> 16, 0x18, "pending all the same");
        assert!(!space.set_interrupt_pending(false));
        assert_eq!(dword(&space, 4) >> 16, 0x10);
    }

    #[test]
    fn bits_of_a_blank_space_are_defined_one_by_one() {
        let mut space = ConfigSpace::blank();
        space.write(0x10, &[0xff; 4]);
        assert_eq!(dword(&space, 0x10), 0);
        space.define_u16(0x10, 0x00ff, 0x1234, false);
        space.define_u16(0x10, 0x0f00, 0x0500, true);
        assert_eq!((space.u16(0x10), space.u32(0x10)), (0x0534, 0x0534));
        space.write(0x10, &[0xff; 4]);
        assert_eq!(dword(&space, 0x10), 0x0f34);
        space.define_u16(0x10, 0x0f00, 0, false);
        space.write(0x10, &[0xff; 4]);
        assert_eq!(dword(&space, 0x10), 0x0034, "defined anew");
    }

    #[test]
    fn accesses_past_the_end_do_nothing() {
        let mut space = space();
        let mut bytes = [0; 4];
        space.read(0xfe, &mut bytes);
        assert_eq!(bytes, [0xff; 4]);
        space.write(0xfe, &bytes);
        assert_eq!(dword(&space, 0xfc), 0);
    }
}
