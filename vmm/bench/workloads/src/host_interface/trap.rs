//! The emulated device: a range of memory and a page of registers that no memory slot covers, so
//! that each access exits to the VMM.
//!
//! The guest loads and stores the memory in 1, 2, 4 or 8 bytes. It stores a packet word by word to
//! [`PACKET`], and executes the packet by a store to [`KICK`]. Completion is polled at
//! [`COMPLETED`]. All registers have 8 bytes.

/// Guest-physical address of the memory of the emulated device (mechanism `trap`). It lies above
/// RAM and below all BARs.
pub const MEMORY: u64 = 0xc000_0000;
/// Size of the emulated device's memory in bytes.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// Guest-physical address of the emulated device's registers.
pub const REGISTERS: u64 = MEMORY + MEMORY_BYTES;
/// Size of the emulated device's range of registers in bytes.
pub const REGISTERS_BYTES: u64 = 4096;

/// Offset of the first of the emulated device's [`PACKET_WORDS`] packet registers, to which the
/// guest stores a packet word by word. The first word is the opcode [`ALLOCATE`], [`FREE`] or
/// [`LAUNCH`], for `LAUNCH` with the kernel's number in the upper half.
pub const PACKET: u64 = 0;
/// Maximum number of 64-bit words of a packet for the emulated device.
pub const PACKET_WORDS: usize = 16;
/// Offset of a register of the emulated device. A store executes the packet in the packet
/// registers; the stored value is the packet's number of 64-bit words.
pub const KICK: u64 = 0x80;
/// Offset of a register of the emulated device. A load returns the number of launches since the
/// device was created, but counts the latest ones only once all have ended. After an error, it
/// returns [`FAILED`].
pub const COMPLETED: u64 = 0x88;
/// Offset of a register of the emulated device. A load returns the offset in the device's memory of
/// the latest allocation, or [`FAILED`] if a packet was refused since.
pub const OFFSET: u64 = 0x90;
/// Offset of a register of the emulated device. A load returns the GPU address of the latest
/// allocation, which kernels use.
pub const ADDRESS: u64 = 0x98;

/// Opcode of a packet that allocates GPU memory. Word 1 is the size in bytes.
pub const ALLOCATE: u64 = 1;
/// Opcode of a packet that frees an allocation. Word 1 is the allocation's offset in the device's
/// memory.
pub const FREE: u64 = 2;
/// Opcode of a packet that launches a kernel. Words 1 and 2 are grid and block, each packed by
/// [`super::forward::pair`]; the kernel's arguments follow.
pub const LAUNCH: u64 = 3;

/// Value that a load from [`OFFSET`] returns after a packet was refused, and a load from
/// [`COMPLETED`] after an error.
pub const FAILED: u64 = u64::MAX;
