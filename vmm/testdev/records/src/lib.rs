//! The test bench around a guest: I/O ports by which it reports, and ends.
//!
//! These are not a part of the device. A store to [`PORT_EXIT`] ends the VM; a store to [`PORT_RECORD`]
//! hands the guest-physical address of a record (below 4 GiB, 8-byte aligned) to the VMM, which copies
//! it, acts, and copies replies back into it. Each is one port exit. A record begins with a
//! [`RecordHeader`].
//!
//! A process of a Linux guest, which knows no guest-physical addresses, has its records in the aperture, and stores to
//! [`PORT_RECORD_APERTURE`].

mod compose;

pub use compose::{NoLetter, Totals};

use crate::wire::structures;

/// Port of the serial console (16550A).
pub const PORT_CONSOLE: u16 = 0x3f8;
/// 4-byte store: ends the VM. Zero is pass, anything else is fail.
pub const PORT_EXIT: u16 = 0xca0;
/// 4-byte store: guest-physical address of a record.
pub const PORT_RECORD: u16 = 0xca4;

/// 4-byte store: where in the aperture a record is, in units of [`RECORD_UNIT_BYTES`].
pub const PORT_RECORD_APERTURE: u16 = 0xca8;
/// Alignment of records in the aperture, in bytes.
pub const RECORD_UNIT_BYTES: u64 = 64;
/// Number of ports, from [`PORT_EXIT`].
pub const PORTS: u16 = 12;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RecordKind {
    /// [`PhaseBegin`]: statistics are sampled; a phase begins.
    PhaseBegin = 1,
    /// [`PhaseEnd`]: statistics are sampled; the phase ends.
    PhaseEnd = 2,
    /// [`Ratio`] or figure for the report.
    Ratio = 3,
    /// [`Letter`]: leave 64 bytes for the other VMs of the run.
    Post = 4,
    /// [`Letter`]: fetch what some VM left, waiting if need be.
    Fetch = 5,
    /// [`Baseline`]: run a loop on a host thread over memory that the guest has mapped.
    Baseline = 6,
    /// [`Panic`]: why the guest is about to exit.
    Panic = 7,
    /// [`RecordHeader`] alone: this virtual CPU has nothing more to do.
    Park = 8,
    /// [`Comparison`]: do natively on the host what the guest has just done and timed.
    Comparison = 9,
    /// [`Identity`]: which VM of the run this is.
    Identity = 10,
}

impl RecordKind {
    /// Decodes the wire value.
    pub const fn from_wire(value: u32) -> Option<Self> {
        match value {
            1 => Some(Self::PhaseBegin),
            2 => Some(Self::PhaseEnd),
            3 => Some(Self::Ratio),
            4 => Some(Self::Post),
            5 => Some(Self::Fetch),
            6 => Some(Self::Baseline),
            7 => Some(Self::Panic),
            8 => Some(Self::Park),
            9 => Some(Self::Comparison),
            10 => Some(Self::Identity),
            _ => None,
        }
    }
}

structures! {
    /// Head of every record.
    pub struct RecordHeader {
        /// [`RecordKind`].
        pub kind: u32,
        /// Bytes of the record, head included.
        pub bytes: u32,
    } = 8

    /// Begin of a phase. Phases do not nest; a new begin ends an open one.
    pub struct PhaseBegin {
        /// Head.
        pub header: RecordHeader,
        /// [`PhasePath`].
        pub path: u32,
        /// Bytes of `name` in use.
        pub name_bytes: u32,
        /// Name, UTF-8.
        pub name: [u8; 48],
    } = 64

    /// End of a phase.
    pub struct PhaseEnd {
        /// Head.
        pub header: RecordHeader,
        /// Operations done in the phase.
        pub operations: u64,
        /// Bytes moved in the phase.
        pub bytes: u64,
        /// Doorbells the guest rang in the phase.
        pub doorbells: u64,
    } = 32

    /// A figure for the report.
    pub struct Ratio {
        /// Head.
        pub header: RecordHeader,
        /// The figure, as the bits of an f64.
        pub value_bits: u64,
        /// Bytes of `name` in use.
        pub name_bytes: u32,
        /// Bytes of `unit` in use; zero for a plain ratio.
        pub unit_bytes: u32,
        /// Name, UTF-8.
        pub name: [u8; 64],
        /// Unit, UTF-8.
        pub unit: [u8; 16],
    } = 104

    /// A letter between the VMs of a run.
    pub struct Letter {
        /// Head.
        pub header: RecordHeader,
        /// Number of the box, below 64.
        pub slot: u32,
        /// Fetch: milliseconds to wait. Reply: 1 if the letter was there, 2 if it is no use to wait for it, else 0.
        pub wait: u32,
        /// The letter.
        pub data: [u8; 64],
    } = 80

    /// A baseline measurement by a host thread.
    pub struct Baseline {
        /// Head.
        pub header: RecordHeader,
        /// [`Loop`].
        pub kind: u32,
        /// Passes over the memory.
        pub passes: u32,
        /// Guest-physical address, in the aperture or in RAM; 64-byte aligned.
        pub address: u64,
        /// Bytes; a multiple of 64.
        pub bytes: u64,
        /// Reply: time stamp counter ticks that the loop took, or zero if the memory is not mapped.
        pub ticks: u64,
    } = 40

    /// A sample of the guest, and the same thing done natively right after it.
    pub struct Comparison {
        /// Head.
        pub header: RecordHeader,
        /// [`Line`].
        pub line: u32,
        /// Operations in the sample, not zero.
        pub operations: u32,
        /// Bytes of each operation, where it has any.
        pub bytes: u64,
        /// Nanoseconds that the guest took for all operations.
        pub guest_ns: u64,
        /// Reply: nanoseconds that the host took natively, or zero if it cannot do this.
        pub native_ns: u64,
    } = 40

    /// Which VM of the run this is: what a bare guest finds in its boot page.
    pub struct Identity {
        /// Head.
        pub header: RecordHeader,
        /// Reply: index of the VM.
        pub vm: u32,
        /// Reply: number of VMs, or zero if nobody answers.
        pub vms: u32,
    } = 16

    /// The guest's last words.
    pub struct Panic {
        /// Head.
        pub header: RecordHeader,
        /// Line in `file`.
        pub line: u32,
        /// Bytes of `file` in use.
        pub file_bytes: u32,
        /// Bytes of `message` in use.
        pub message_bytes: u32,
        /// Zero.
        pub reserved: u32,
        /// Source file, UTF-8.
        pub file: [u8; 128],
        /// Message, UTF-8, cut if longer.
        pub message: [u8; 256],
    } = 408
}

/// What a phase exercises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PhasePath {
    /// Preparation and verification: may do anything.
    Setup = 0,
    /// Control path: exits are expected, and counted per operation.
    Control = 1,
    /// Data path: must not exit.
    Data = 2,
}

/// Loops that the host can run beside the guest's own, over the same memory (crate `causeway-kernels`, `loops`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Loop {
    /// 8-byte stores.
    Store = 1,
    /// 8-byte loads.
    Load = 2,
}

macro_rules! lines {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal;)*) => {
        /// What the guest `bench` times, and the host does natively beside it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Line { $($(#[doc = $doc])* $name = $value,)* }

        // Each is the name of a phase, too.
        const _: () = { $(assert!($text.len() <= size_of::<PhaseBegin>() - core::mem::offset_of!(PhaseBegin, name));)* };

        /// Every line, in the order of the table.
        pub const LINES: &[Line] = &[$(Line::$name,)*];

        impl Line {
            /// Decodes the wire value.
            pub const fn from_wire(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }

            /// Short name, as phases, tables and JSON have it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What is timed, and what natively: for the documentation.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)*),)* }
            }
        }
    };
}

lines! {
    /// Handing over one launch of an empty kernel: packet and publication. Natively: `cuLaunchKernel`, not waited for.
    Submit = 1, "submit a launch";
    /// A launch and a fence, waited for by spinning. Natively: `cuLaunchKernel`, `cuStreamSynchronize` (spinning).
    LaunchAndWait = 2, "launch and wait";
    /// Launches one behind the other, waited for once. Natively: the same with `cuLaunchKernel`.
    Pipelined = 3, "launches, pipelined";
    /// Kernels of a recorded sequence of 100, replayed. Natively: as many single launches, waited for once.
    Recorded = 4, "recorded launches against single ones";
    /// The same. Natively: a CUDA graph of 100 kernels.
    RecordedGraph = 5, "recorded launches against a graph";
    /// A copy from guest RAM to device memory. Natively: from pinned memory (`cuMemHostAlloc`).
    CopyToDevice = 6, "copy to the device";
    /// A copy from device memory to guest RAM. Natively: to pinned memory.
    CopyFromDevice = 7, "copy from the device";
    /// Memory from a pool of the shim, and back. Natively: `cuMemAlloc`, `cuMemFree`.
    AllocatePooled = 8, "allocate and free, pooled";
    /// An allocation mapped for the GPU in one batch, and freed in another. Natively: `cuMemAlloc`, `cuMemFree`.
    Allocate = 9, "allocate and free, by the mediator";
    /// The same. Natively: `cuMemCreate`, reserve, map, set access, and all of it undone.
    AllocateVmm = 10, "allocate and free, against the native VMM calls";
    /// Guest RAM registered, mapped for the GPU, and given back. Natively: `cuMemHostRegister`, `cuMemHostUnregister`.
    Register = 11, "register memory";
    /// The first stores to every word of fresh host memory. Natively: to fresh anonymous memory.
    FirstWrite = 12, "first write to fresh host memory";
    /// Host memory allocated, mapped and written. Natively: `cuMemHostAlloc`, written.
    AllocateAndWrite = 13, "allocate host memory and write it";
    /// A word to a running kernel and its answer, through CPU-visible device memory. Natively: through pinned host
    /// memory, for device memory has no native pointer.
    EchoDevice = 14, "round trip to a running kernel, device memory";
    /// The same through host memory on both sides.
    EchoHost = 15, "round trip to a running kernel, host memory";
    /// The word through CPU-visible device memory, the answer through host memory: each side looks into memory of its
    /// own. Natively: through pinned host memory.
    EchoMixed = 16, "round trip to a running kernel, mixed memory";
}
