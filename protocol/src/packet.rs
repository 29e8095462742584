//! Packets of a command buffer.
//!
//! A packet is a whole number of [`UNIT_BYTES`]-byte units, and begins with a [`Header`]. It never
//! straddles the end of the ring: the producer fills what is left there with one [`Opcode::Nop`].
//! A recording ([`crate::message::CreateRecording`]) holds packets one after the other: all but
//! [`Opcode::FenceAcquire`] and [`Opcode::Replay`].
//! Packets of one command buffer are executed in order; between command buffers, order is made with fences.

use crate::wire::structures;

/// Bytes in a unit of ring space.
pub const UNIT_BYTES: usize = 64;
/// Most bytes of inline kernel parameters.
pub const PARAMETER_BYTES_MAX: usize = 4096;
/// Units of the longest packet that is not a no-op.
pub const UNITS_MAX: u32 = (UNIT_BYTES + PARAMETER_BYTES_MAX) as u32 / UNIT_BYTES as u32;

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Opcode {
    /// Nothing. May be of any length up to the end of the ring; only its head is read.
    Nop = 1,
    /// Run a kernel.
    Launch = 2,
    /// Copy memory. The ranges must not overlap.
    Copy = 3,
    /// Fill memory with a pattern.
    Fill = 4,
    /// Store a value to a fence once everything before is done.
    FenceRelease = 5,
    /// Go on when a fence has reached a value.
    FenceAcquire = 6,
    /// Store the device's time in nanoseconds once everything before is done.
    Timestamp = 7,
    /// Do everything in a recording, in order (since 1.1).
    Replay = 8,
}

/// Every packet opcode, for tables and tests.
pub const OPCODES: [Opcode; 8] = [
    Opcode::Nop,
    Opcode::Launch,
    Opcode::Copy,
    Opcode::Fill,
    Opcode::FenceRelease,
    Opcode::FenceAcquire,
    Opcode::Timestamp,
    Opcode::Replay,
];

impl Opcode {
    /// Decodes the wire value.
    pub const fn from_wire(value: u16) -> Option<Self> {
        match value {
            1 => Some(Self::Nop),
            2 => Some(Self::Launch),
            3 => Some(Self::Copy),
            4 => Some(Self::Fill),
            5 => Some(Self::FenceRelease),
            6 => Some(Self::FenceAcquire),
            7 => Some(Self::Timestamp),
            8 => Some(Self::Replay),
            _ => None,
        }
    }

    /// Short name for reports, logs and the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nop => "nop",
            Self::Launch => "launch",
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::FenceRelease => "fence_release",
            Self::FenceAcquire => "fence_acquire",
            Self::Timestamp => "timestamp",
            Self::Replay => "replay",
        }
    }
}

structures! {
    /// Head of every packet.
    pub struct Header {
        /// [`Opcode`].
        pub opcode: u16,
        /// Zero.
        pub reserved: u16,
        /// Length of the packet in units, head included; not zero.
        pub units: u32,
    } = 8

    /// Runs a kernel. `parameter_bytes` bytes of parameters follow the structure.
    pub struct Launch {
        /// Head.
        pub header: Header,
        /// Function handle.
        pub function: u32,
        /// Dynamic shared memory in bytes.
        pub shared_bytes: u32,
        /// Blocks in x, y, z; none zero.
        pub grid: [u32; 3],
        /// Threads of a block in x, y, z; none zero.
        pub block: [u32; 3],
        /// Bytes of parameters; what the function's layout says, exactly.
        pub parameter_bytes: u32,
        /// Zero.
        pub reserved: [u32; 5],
    } = 64

    /// Copies `length` bytes.
    pub struct CopyRange {
        /// Head.
        pub header: Header,
        /// GPU virtual address of the destination.
        pub destination: u64,
        /// GPU virtual address of the source.
        pub source: u64,
        /// Bytes; not zero.
        pub length: u64,
        /// Zero.
        pub reserved: [u64; 4],
    } = 64

    /// Fills `length` bytes.
    pub struct Fill {
        /// Head.
        pub header: Header,
        /// GPU virtual address; a multiple of `width`.
        pub destination: u64,
        /// Bytes; a multiple of `width`, not zero.
        pub length: u64,
        /// Pattern in the low `width` bytes; the rest is zero.
        pub pattern: u32,
        /// Bytes of the pattern: 1, 2 or 4.
        pub width: u32,
        /// Zero.
        pub reserved: [u64; 4],
    } = 64

    /// Stores to, or waits for, a fence.
    pub struct Fence {
        /// Head.
        pub header: Header,
        /// GPU virtual address of the 64-bit fence; 8-byte aligned.
        pub address: u64,
        /// Value to store, or to wait for. Zero for a timestamp, which stores the time.
        pub value: u64,
        /// Zero.
        pub reserved: [u64; 5],
    } = 64

    /// Replays a recording of the command buffer's address space.
    pub struct Replay {
        /// Head.
        pub header: Header,
        /// Recording handle.
        pub recording: u32,
        /// Zero.
        pub reserved: [u32; 13],
    } = 64
}

/// Units of a launch packet with `parameter_bytes` bytes of parameters.
pub const fn launch_units(parameter_bytes: usize) -> u32 {
    1 + parameter_bytes.div_ceil(UNIT_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_survive_a_round_trip() {
        for opcode in OPCODES {
            assert_eq!(Opcode::from_wire(opcode as u16), Some(opcode));
        }
        assert_eq!(Opcode::from_wire(0), None);
        assert_eq!(Opcode::from_wire(9), None);
    }

    #[test]
    fn the_longest_launch_fits_the_limit() {
        assert_eq!(launch_units(0), 1);
        assert_eq!(launch_units(1), 2);
        assert_eq!(launch_units(PARAMETER_BYTES_MAX), UNITS_MAX);
    }
}
