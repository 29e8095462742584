//! How the registers of a warp lie in memory: lane beside lane, in frames and constants.

/// Number of threads of a warp.
pub(crate) const WARP: usize = 32;
/// Bytes of a register of up to 32 bits: one word per lane.
pub(crate) const WORD_BYTES: u32 = 4 * WARP as u32;
/// Bytes at the start of every frame, where calls keep their return positions.
pub(crate) const FRAME_HEADER_BYTES: u32 = 3 * WORD_BYTES;

/// Where a register is: a byte offset into the frame, or (top bit set) into the kernel's constants.
///
/// Words are 32 lanes of 4 bytes, doubles 32 lanes of 8; predicates are one 32-bit mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    const CONSTANT: u32 = 1 << 31;

    /// Returns the register at byte offset `offset` of the constants.
    pub(crate) const fn constant(offset: u32) -> Self {
        Self(offset | Self::CONSTANT)
    }

    /// Returns 0 for a register of the frame, 1 for a constant.
    pub(crate) const fn bank(self) -> usize {
        (self.0 >> 31) as usize
    }

    /// Returns the byte offset of the register in its bank.
    pub(crate) const fn offset(self) -> usize {
        (self.0 & !Self::CONSTANT) as usize
    }
}

/// A predicate that selects the lanes which execute an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    /// Register of the predicate.
    pub(crate) slot: Slot,
    /// All ones for `@!p`, else zero.
    pub(crate) invert: u32,
}

/// Size, or position, of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameBytes {
    /// Bytes of registers of a warp.
    pub(crate) registers: u32,
    /// Bytes of local memory of a thread.
    pub(crate) local: u32,
}

/// 128 bytes, aligned for vector loads.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub(crate) struct Row(pub(crate) [u32; WARP]);
