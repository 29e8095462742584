//! The device that traps: a range of memory and a page of registers that no memory slot covers.
//!
//! Memory is loaded and stored in 1, 2, 4 or 8 bytes; each access is an exit. A packet is stored
//! word by word to [`PACKET`] and takes effect with a store to [`KICK`]. Completion is polled at
//! [`COMPLETED`]. All registers have 8 bytes.

/// Guest-physical address of the memory. It lies above RAM and below all BARs.
pub const MEMORY: u64 = 0xc000_0000;
/// Its size in bytes.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// Guest-physical address of the registers.
pub const REGISTERS: u64 = MEMORY + MEMORY_BYTES;
/// Their size in bytes.
pub const REGISTERS_BYTES: u64 = 4096;

/// First word of a packet: [`ALLOCATE`], [`FREE`], or [`LAUNCH`] with the kernel's number in the
/// upper half.
pub const PACKET: u64 = 0;
/// Most words of a packet.
pub const PACKET_WORDS: usize = 16;
/// Store: executes the packet, of so many words.
pub const KICK: u64 = 0x80;
/// Load: launches that are done, of all that there were.
pub const COMPLETED: u64 = 0x88;
/// Load: offset of the memory that was allocated last; [`FAILED`] if that was refused, or the
/// packet made no sense.
pub const OFFSET: u64 = 0x90;
/// Load: its address for kernels.
pub const ADDRESS: u64 = 0x98;

/// Packet: memory of so many bytes (word 1).
pub const ALLOCATE: u64 = 1;
/// Packet: the memory at this offset (word 1) is free again.
pub const FREE: u64 = 2;
/// Packet: launches a kernel. Words 1 and 2 are grid and block ([`super::forward::pair`]), then
/// come arguments.
pub const LAUNCH: u64 = 3;

/// Value of [`OFFSET`] after a refusal.
pub const FAILED: u64 = u64::MAX;
