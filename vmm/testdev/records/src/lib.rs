//! Ports and records of the test device, which guests and the VMM share.
//!
//! A store to [`PORT_EXIT`] ends the VM. A store to [`PORT_RECORD`] hands a record to the test
//! device by its guest-physical address, which is below 4 GiB and 8-byte aligned. The device copies
//! the record, acts on it, and copies a reply back into it. Each store is one port exit. A record
//! begins with a [`RecordHeader`].
//!
//! A process of a Linux guest does not know guest-physical addresses. Its records are in the
//! aperture, and it stores to [`PORT_RECORD_APERTURE`].
#![no_std]

#[cfg(test)]
extern crate std;

mod compose;

pub use compose::{NoMail, Totals};

use causeway_protocol::wire::structures;

/// 4-byte store: ends the VM. Zero is pass, anything else is fail.
pub const PORT_EXIT: u16 = 0xca0;
/// 4-byte store: guest-physical address of a record.
pub const PORT_RECORD: u16 = 0xca4;

/// 4-byte store: offset of a record in the aperture, in units of [`RECORD_UNIT_BYTES`].
pub const PORT_RECORD_APERTURE: u16 = 0xca8;
/// Alignment of records in the aperture, in bytes.
pub const RECORD_UNIT_BYTES: u64 = 64;
/// Number of ports, from [`PORT_EXIT`].
pub const PORTS: u16 = 12;
/// Number of mailboxes that the VMs of a run share.
pub const MAILBOXES: usize = 64;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RecordKind {
    /// [`PhaseBegin`]: statistics are sampled; a phase begins.
    PhaseBegin = 1,
    /// [`PhaseEnd`]: statistics are sampled; the phase ends.
    PhaseEnd = 2,
    /// [`Figure`]: a figure for the report.
    Figure = 3,
    /// [`Mail`]: put 64 bytes into a mailbox, for the other VMs of the run.
    Post = 4,
    /// [`Mail`]: fetch what a VM has put into a mailbox; the host waits for it.
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
            3 => Some(Self::Figure),
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
    /// Header of every record.
    pub struct RecordHeader {
        /// [`RecordKind`].
        pub kind: u32,
        /// Bytes of the record, header included.
        pub bytes: u32,
    } = 8

    /// Begin of a phase. Phases do not nest; a new begin ends an open one.
    pub struct PhaseBegin {
        /// Header.
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
        /// Header.
        pub header: RecordHeader,
        /// Operations done in the phase.
        pub operations: u64,
        /// Bytes moved in the phase.
        pub bytes: u64,
        /// Doorbells the guest rang in the phase.
        pub doorbells: u64,
    } = 32

    /// A figure for the report.
    pub struct Figure {
        /// Header.
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

    /// Mail between the VMs of a run.
    pub struct Mail {
        /// Header.
        pub header: RecordHeader,
        /// Number of the mailbox, below [`MAILBOXES`].
        pub mailbox: u32,
        /// Fetch: milliseconds to wait. Reply: 1 if there is mail, 2 if its sender has failed, else
        /// 0.
        pub wait: u32,
        /// The mail.
        pub data: [u8; 64],
    } = 80

    /// A baseline measurement by a host thread.
    pub struct Baseline {
        /// Header.
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

    /// A sample of a guest, and the time of the same operations done natively right after it.
    pub struct Comparison {
        /// Header.
        pub header: RecordHeader,
        /// Number of the line of `bench gpu`.
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

    /// Which VM of the run this is. A bare guest finds the same numbers in its boot page.
    pub struct Identity {
        /// Header.
        pub header: RecordHeader,
        /// Reply: index of the VM.
        pub vm: u32,
        /// Reply: number of VMs; zero without a test device.
        pub vms: u32,
    } = 16

    /// Why the guest panicked.
    pub struct Panic {
        /// Header.
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

/// Loops that the host runs over the guest's memory, to compare with the guest's own (crate
/// `causeway-kernels`, `loops`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Loop {
    /// 8-byte stores.
    Store = 1,
    /// 8-byte loads.
    Load = 2,
}
