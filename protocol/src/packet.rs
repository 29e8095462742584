//! Packets of a command buffer.
//!
//! A packet is a whole number of [`UNIT_BYTES`]-byte units, and begins with a [`Header`]. It never
//! straddles the end of the ring: the producer fills what is left there with one [`Opcode::Nop`]. A
//! recording ([`crate::message::CreateRecording`]) holds packets one after the other: all but
//! [`Opcode::FenceAcquire`] and [`Opcode::Replay`]. Packets of one command buffer are executed in
//! order; between command buffers, order is made with fences.

use crate::wire::{structures, wire_enum};

/// Bytes in a unit of ring space.
pub const UNIT_BYTES: usize = 64;
/// Most bytes of inline kernel parameters.
pub const PARAMETER_BYTES_MAX: usize = 4096;
/// Units of the longest packet that is not a no-op.
pub const UNITS_MAX: u32 = (UNIT_BYTES + PARAMETER_BYTES_MAX) as u32 / UNIT_BYTES as u32;

macro_rules! packets {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal, $structure:ident;)*) => {
        wire_enum! {
            /// What a packet does.
            pub enum Opcode: u16 { $($(#[doc = $doc])* $name = $value,)* }
        }

        impl Opcode {
            /// Short name, as reports, logs and the documentation print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Name of the packet's structure, for the documentation.
            pub const fn structure(self) -> &'static str {
                match self { $(Self::$name => stringify!($structure),)* }
            }
        }

        $(const _: () = assert!(size_of::<$structure>() <= UNIT_BYTES);)*
    };
}

packets! {
    /// Do nothing. May be of any length up to the end of the ring; only its header is read.
    Nop = 1, "nop", Header;
    /// Run a kernel.
    Launch = 2, "launch", Launch;
    /// Copy memory. The ranges must not overlap.
    Copy = 3, "copy", CopyRange;
    /// Fill memory with a pattern.
    Fill = 4, "fill", Fill;
    /// Store a value to a fence once everything before is done.
    FenceRelease = 5, "fence_release", Fence;
    /// Go on when a fence has reached a value.
    FenceAcquire = 6, "fence_acquire", Fence;
    /// Store the device's time in nanoseconds once everything before is done.
    Timestamp = 7, "timestamp", Fence;
    /// Do everything in a recording, in order (since 1.1).
    Replay = 8, "replay", Replay;
}

/// Every packet opcode, for tables and tests.
pub const OPCODES: &[Opcode] = Opcode::ALL;

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

    /// Dynamic shared memory, grid and block of a launch.
    pub struct LaunchShape {
        /// Dynamic shared memory of a block in bytes.
        pub shared_bytes: u32,
        /// Blocks in x, y, z; none zero.
        pub grid: [u32; 3],
        /// Threads of a block in x, y, z; none zero.
        pub block: [u32; 3],
    } = 28

    /// Runs a kernel. `parameter_bytes` bytes of parameters follow the structure.
    pub struct Launch {
        /// Head.
        pub header: Header,
        /// Function handle.
        pub function: u32,
        /// Dimensions.
        pub shape: LaunchShape,
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
            assert_eq!(Opcode::from_wire(*opcode as u16), Some(*opcode));
        }
        assert_eq!(Opcode::from_wire(0), None);
        assert_eq!(Opcode::from_wire(Opcode::SLOTS as u16), None);
    }

    #[test]
    fn the_longest_launch_fits_the_limit() {
        assert_eq!(launch_units(0), 1);
        assert_eq!(launch_units(1), 2);
        assert_eq!(launch_units(PARAMETER_BYTES_MAX), UNITS_MAX);
    }
}
