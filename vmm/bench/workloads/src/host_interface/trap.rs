//! The emulated device: a range of memory and a page of registers that no memory slot covers, so
//! that each access exits to the VMM.
//!
//! Memory is loaded and stored in 1, 2, 4 or 8 bytes. A packet is stored
//! word by word to [`PACKET`] and takes effect with a store to [`KICK`]. Completion is polled at
//! [`COMPLETED`]. All registers have 8 bytes.

/// Guest-physical address of the device's memory, above RAM and below all BARs.
pub const MEMORY: u64 = 0xc000_0000;
/// Size of the device's memory in bytes.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// Guest-physical address of the device's registers.
pub const REGISTERS: u64 = MEMORY + MEMORY_BYTES;
/// Size of the register range in bytes.
pub const REGISTERS_BYTES: u64 = 4096;

/// Offset of the first register that holds a packet. The first word of a packet is [`ALLOCATE`],
/// [`FREE`], or [`LAUNCH`] with the kernel's number in the upper half.
pub const PACKET: u64 = 0;
/// Most 64-bit words of a packet.
pub const PACKET_WORDS: usize = 16;
/// Offset of a register: a store executes the packet; the stored value is the packet's number of
/// words.
pub const KICK: u64 = 0x80;
/// Offset of a register: a load returns how many launches have ended since the start.
pub const COMPLETED: u64 = 0x88;
/// Offset of a register: a load returns the offset of the memory that was allocated last, or
/// [`FAILED`] if the last packet was refused.
pub const OFFSET: u64 = 0x90;
/// Offset of a register: a load returns the address for kernels of the memory that was allocated
/// last.
pub const ADDRESS: u64 = 0x98;

/// Packet: allocates as many bytes as word 1 says.
pub const ALLOCATE: u64 = 1;
/// Packet: frees the memory at the offset in word 1.
pub const FREE: u64 = 2;
/// Packet: launches a kernel. Words 1 and 2 are grid and block ([`super::forward::pair`]); the
/// kernel's arguments follow.
pub const LAUNCH: u64 = 3;

/// Value of [`OFFSET`] after a packet was refused.
pub const FAILED: u64 = u64::MAX;
