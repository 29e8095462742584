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
/// Maximum size in bytes of the kernel parameters in a launch packet, as CUDA has it. More than
/// [`PARAMETER_BYTES_USUAL`] need the feature `LARGE_PARAMETERS` (since 1.3).
pub const PARAMETER_BYTES_MAX: usize = 32_764;
/// Maximum size in bytes of the kernel parameters in a launch packet for every host.
pub const PARAMETER_BYTES_USUAL: usize = 4096;
/// Length in units of the longest launch packet, which has [`PARAMETER_BYTES_MAX`] bytes of
/// parameters. Only no-op packets can be longer.
pub const UNITS_MAX: u32 = launch_units(PARAMETER_BYTES_MAX);
/// Maximum distance between two rows of a rectangle in bytes.
pub const PITCH_MAX: u32 = i32::MAX as u32;
/// Maximum number of rows that one packet copies or fills, so that no packet takes much longer than
/// a copy of the same range of addresses.
pub const ROWS_MAX: u64 = 1 << 20;

/// Bits of [`LaunchOptions::flags`].
pub mod launch_flags {
    /// Cooperative launch: all blocks run at the same time, so that they can wait for each other.
    pub const COOPERATIVE: u32 = 1 << 0;
}

/// Bits of [`Fence::flags`].
pub mod fence_flags {
    /// The fence is a word of 32 bits, whose address is a multiple of 4.
    pub const HALF: u32 = 1 << 0;
}

wire_enum! {
    /// What a word must be for the wait of a fence acquire to end.
    pub enum Condition: u32 {
        /// At least the value; both are unsigned.
        Reached = 0,
        /// Not before the value: the difference of both, as a signed number of as many bits as the
        /// word has, is not negative. So a word that counts may wrap.
        NotBefore = 1,
        /// Equal to the value.
        Equal = 2,
        /// It has a bit that the value has.
        And = 3,
        /// It lacks a bit that the value lacks.
        Nor = 4,
    }
}

impl Condition {
    /// Returns whether `word` meets the condition. `bits` is its size, 32 or 64; higher bits of
    /// `word` and `value` do not count.
    #[must_use]
    pub const fn is_met(self, word: u64, value: u64, bits: u32) -> bool {
        // The bits of a short word are moved to the top, where those of a sign are.
        let shift = 64 - bits;
        let (word, value) = (word << shift, value << shift);
        match self {
            Self::Reached => word >= value,
            Self::NotBefore => word.wrapping_sub(value).cast_signed() >= 0,
            Self::Equal => word == value,
            Self::And => word & value != 0,
            Self::Nor => !(word | value) >> shift != 0,
        }
    }
}

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
    /// Copy a box between memory and an array. Needs the feature `ARRAYS` (since 1.5).
    CopyArray = 11, "copy_array", CopyArray;
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

    /// How the blocks of a launch stand to each other. All zero is a plain launch; anything else
    /// needs the feature `LAUNCH_OPTIONS` (since 1.3).
    pub struct LaunchOptions {
        /// Bit set of [`launch_flags`].
        pub flags: u32,
        /// Number of blocks of a cluster in x, y and z, which divide those of the grid; all zero
        /// for what the kernel itself asks for.
        pub cluster: [u32; 3],
    } = 16

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
        /// How the blocks stand to each other.
        pub options: LaunchOptions,
        /// Reserved: zero.
        pub reserved: u32,
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
        /// GPU virtual address of the fence, a word of 64 bits; a multiple of 8. With
        /// [`fence_flags::HALF`], a word of 32 bits; a multiple of 4.
        pub address: u64,
        /// Value to store or to wait for. Zero in a timestamp packet, which stores the time
        /// instead.
        pub value: u64,
        /// Bit set of [`fence_flags`]; zero in a timestamp packet. Others than zero need the
        /// feature `WORDS` (since 1.3).
        pub flags: u32,
        /// The [`Condition`] of a fence acquire. Others than [`Condition::Reached`] need the
        /// feature `WORDS` (since 1.3).
        pub condition: u32,
        /// Reserved: zero.
        pub reserved: [u64; 4],
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

    /// What a [`FillRect`] fills: `height` rows of `width` bytes, at most [`ROWS_MAX`] rows; none
    /// is zero.
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

    /// A box of an array, and the rows of memory that are copied to it or from it: `depth` slices,
    /// layers or faces of `height` rows of `width` bytes, at most [`ROWS_MAX`] rows; none is zero.
    pub struct ArrayBox {
        /// Where the rows are in memory. The addresses from the first to the last byte lie in one
        /// mapping.
        pub memory: RectSide,
        /// Where the box begins in the array: bytes in a row, rows, slices.
        pub origin: [u32; 3],
        /// Size of a row in bytes: a whole number of elements, as is the origin's first number.
        pub width: u32,
        /// Number of rows of a slice.
        pub height: u32,
        /// Number of slices.
        pub depth: u32,
    } = 40

    /// Copies a box between memory and an array.
    pub struct CopyArray {
        /// Header of the packet.
        pub header: Header,
        /// Handle of the array, which must belong to the address space of the command buffer.
        pub array: u32,
        /// 0: from memory to the array; 1: from the array to memory.
        pub direction: u32,
        /// The box and the rows.
        pub part: ArrayBox,
        /// Reserved: zero.
        pub reserved: u64,
    } = 64
}

impl LaunchOptions {
    /// The options of a plain launch.
    pub const PLAIN: Self = Self {
        flags: 0,
        cluster: [0; 3],
    };
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
    fn words_meet_conditions_by_their_own_bits() {
        use Condition::{And, Equal, Nor, NotBefore, Reached};
        for (condition, word, value, bits, met) in [
            (Reached, 5, 5, 64, true),
            (Reached, 1, u64::MAX, 64, false),
            (Reached, 0x1_0000_0004, 5, 32, false),
            (NotBefore, 4, 5, 64, false),
            (NotBefore, 1, u64::MAX, 64, true),
            (NotBefore, 1, 0xffff_ffff, 32, true),
            (NotBefore, 1, 0xffff_ffff, 64, false),
            (Equal, 0x1_0000_0007, 7, 32, true),
            (Equal, 0x1_0000_0007, 7, 64, false),
            (And, 6, 2, 32, true),
            (And, 0x1_0000_0000, 0x1_0000_0000, 32, false),
            (And, 0x1_0000_0000, 0x1_0000_0000, 64, true),
            (Nor, 0xffff_0000, 0x0000_ffff, 32, false),
            (Nor, 0xffff_0000, 0x0000_7fff, 32, true),
            (Nor, 0xffff_0000, 0x0000_ffff, 64, true),
            (Nor, u64::MAX, 0, 64, false),
        ] {
            let found = condition.is_met(word, value, bits);
            assert_eq!(found, met, "{condition:?} {word:#x} {value:#x} {bits}");
        }
    }

    #[test]
    fn the_longest_launch_fits_the_limit() {
        assert_eq!(launch_units(0), 1);
        assert_eq!(launch_units(1), 2);
        assert_eq!(launch_units(PARAMETER_BYTES_MAX), UNITS_MAX);
    }
}
