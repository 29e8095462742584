//! Packets of a command buffer.
//!
//! A packet is a whole number of [`UNIT_BYTES`]-byte units, and begins with a [`Header`]. It never
//! straddles the end of the ring: the producer fills what is left there with one [`Opcode::Nop`]. A
//! recording ([`crate::message::CreateRecording`]) holds packets one after the other: all but
//! [`Opcode::FenceAcquire`] and [`Opcode::Replay`]. Packets of one command buffer are executed in
//! order; between command buffers, order is made with fences.

mod rectangle;

use crate::wire::{structures, wire_enum};

/// Size of a unit of a ring in bytes. A packet has a whole number of units.
pub const UNIT_BYTES: usize = 64;
/// Maximum size in bytes of the kernel parameters in a launch packet.
pub const PARAMETER_BYTES_MAX: usize = 4096;
/// Length in units of the longest launch packet, which has [`PARAMETER_BYTES_MAX`] bytes of
/// parameters. Only no-op packets can be longer.
pub const UNITS_MAX: u32 = (UNIT_BYTES + PARAMETER_BYTES_MAX) as u32 / UNIT_BYTES as u32;
/// Maximum distance between two rows of a rectangle in bytes.
pub const PITCH_MAX: u32 = i32::MAX as u32;
/// Maximum number of rows that one packet copies or fills, so that no packet takes much longer than
/// a copy of the same range of addresses.
pub const ROWS_MAX: u64 = 1 << 20;

macro_rules! packets {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident = $value:literal, $text:literal, $structure:ident;
    )*) => {
        wire_enum! {
            /// Kinds of packets, with the numbers that stand for them in packet headers.
            pub enum Opcode: u16 { $($(#[doc = $doc])* $name = $value,)* }
        }

        impl Opcode {
            /// Returns the short name of this kind of packet in reports, logs and the
            /// documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the name of the structure of this kind of packet, for the documentation.
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
    /// Store a value to a fence once all earlier packets are done.
    FenceRelease = 5, "fence_release", Fence;
    /// Wait until a fence has reached a value.
    FenceAcquire = 6, "fence_acquire", Fence;
    /// Store the device's time in nanoseconds once all earlier packets are done.
    Timestamp = 7, "timestamp", Fence;
    /// Execute all packets of a recording, in order (since 1.1).
    Replay = 8, "replay", Replay;
    /// Copy the rows of a rectangle or a box. Needs the feature `RECTANGLES` (since 1.3).
    CopyRect = 9, "copy_rect", CopyRect;
    /// Fill the rows of a rectangle with a pattern. Needs the feature `RECTANGLES` (since 1.3).
    FillRect = 10, "fill_rect", FillRect;
}

/// All kinds of packets, for tables and tests.
pub const OPCODES: &[Opcode] = Opcode::ALL;

structures! {
    /// Header at the beginning of every packet.
    pub struct Header {
        /// Kind of the packet: an [`Opcode`].
        pub opcode: u16,
        /// Reserved: zero.
        pub reserved: u16,
        /// Length of the packet in units, header included; not zero.
        pub units: u32,
    } = 8

    /// Grid, blocks and dynamic shared memory with which a kernel is launched.
    pub struct LaunchShape {
        /// Dynamic shared memory of each block in bytes.
        pub shared_bytes: u32,
        /// Number of blocks of the grid in x, y and z; none is zero.
        pub grid: [u32; 3],
        /// Number of threads of a block in x, y and z; none is zero.
        pub block: [u32; 3],
    } = 28

    /// Runs a kernel. Its parameters follow the structure: `parameter_bytes` bytes, and zeros up to
    /// a whole number of units.
    pub struct Launch {
        /// Header of the packet.
        pub header: Header,
        /// Handle of the kernel, as [`crate::message::KernelReply`] returned it.
        pub kernel: u32,
        /// Grid, blocks and dynamic shared memory.
        pub shape: LaunchShape,
        /// Size of the parameters in bytes, which must be the `parameter_bytes` of
        /// [`crate::message::KernelReply`].
        pub parameter_bytes: u32,
        /// Reserved: zero.
        pub reserved: [u32; 5],
    } = 64

    /// Copies `length` bytes from one GPU virtual address to another.
    pub struct CopyRange {
        /// Header of the packet.
        pub header: Header,
        /// GPU virtual address of the destination.
        pub destination: u64,
        /// GPU virtual address of the source.
        pub source: u64,
        /// Number of bytes to copy; not zero.
        pub length: u64,
        /// Reserved: zero.
        pub reserved: [u64; 4],
    } = 64

    /// Fills `length` bytes with a repeated pattern of `width` bytes.
    pub struct Fill {
        /// Header of the packet.
        pub header: Header,
        /// First GPU virtual address; a multiple of `width`.
        pub destination: u64,
        /// Number of bytes to fill; a multiple of `width`, not zero.
        pub length: u64,
        /// The pattern, in the low `width` bytes; the other bytes are zero.
        pub pattern: u32,
        /// Size of the pattern in bytes: 1, 2 or 4.
        pub width: u32,
        /// Reserved: zero.
        pub reserved: [u64; 4],
    } = 64

    /// Stores a value to a fence, waits until a fence has reached a value, or stores the time: the
    /// opcode says which.
    pub struct Fence {
        /// Header of the packet.
        pub header: Header,
        /// GPU virtual address of the 64-bit fence; a multiple of 8.
        pub address: u64,
        /// Value to store or to wait for. Zero in a timestamp packet, which stores the time
        /// instead.
        pub value: u64,
        /// Reserved: zero.
        pub reserved: [u64; 5],
    } = 64

    /// Executes all packets of a recording, which must belong to the address space of the command
    /// buffer.
    pub struct Replay {
        /// Header of the packet.
        pub header: Header,
        /// Handle of the recording, as `create_recording` returned it.
        pub recording: u32,
        /// Reserved: zero.
        pub reserved: [u32; 13],
    } = 64

    /// Where the rows of one side of a [`CopyRect`] are.
    pub struct RectSide {
        /// GPU virtual address of the first byte of the first row.
        pub address: u64,
        /// Distance between two rows in bytes: from the width of a row to [`PITCH_MAX`].
        pub pitch: u32,
        /// Distance between two slices in rows; not less than the height.
        pub rows: u32,
    } = 16

    /// What a [`CopyRect`] copies: `depth` slices of `height` rows of `width` bytes, at most
    /// [`ROWS_MAX`] rows; none is zero.
    pub struct CopyShape {
        /// Where the rows are written.
        pub destination: RectSide,
        /// Where the rows are read.
        pub source: RectSide,
        /// Size of a row in bytes.
        pub width: u64,
        /// Number of rows of a slice.
        pub height: u32,
        /// Number of slices.
        pub depth: u32,
    } = 48

    /// Copies rows. The addresses from the first to the last byte of each side lie in one mapping.
    /// The two sides do not overlap; or their pitches are equal, and their columns do not overlap.
    pub struct CopyRect {
        /// Header of the packet.
        pub header: Header,
        /// The rows.
        pub shape: CopyShape,
        /// Reserved: zero.
        pub reserved: u64,
    } = 64

    /// What a [`FillRect`] fills: `height` rows of `width` bytes, at most [`ROWS_MAX`] rows; none is
    /// zero.
    pub struct FillShape {
        /// GPU virtual address of the first byte of the first row; a multiple of `element`.
        pub destination: u64,
        /// Distance between two rows in bytes: from the width of a row to [`PITCH_MAX`]; a multiple
        /// of `element`.
        pub pitch: u32,
        /// Number of rows.
        pub height: u32,
        /// Size of a row in bytes; a multiple of `element`.
        pub width: u64,
        /// The pattern, in the low `element` bytes; the other bytes are zero.
        pub pattern: u32,
        /// Size of the pattern in bytes: 1, 2 or 4.
        pub element: u32,
    } = 32

    /// Fills rows with a repeated pattern. The addresses from the first to the last byte lie in one
    /// mapping.
    pub struct FillRect {
        /// Header of the packet.
        pub header: Header,
        /// The rows and the pattern.
        pub shape: FillShape,
        /// Reserved: zero.
        pub reserved: [u64; 3],
    } = 64
}

/// Returns the length in units of a launch packet with `parameter_bytes` bytes of parameters.
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
