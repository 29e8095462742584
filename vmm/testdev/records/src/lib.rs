//! Ports and records of the test device, which guests and the VMM share.
//!
//! A store to [`PORT_EXIT`] ends the VM. A store to [`PORT_RECORD`] hands a record to the test
//! device by its guest-physical address, which is below 4 GiB and 8-byte aligned. The device copies
//! the record, acts on it, and copies a reply back into it. Each store is one port exit. A record
//! begins with a [`RecordHeader`].
//!
//! A process of a Linux guest does not know guest-physical addresses. Its records are in the
//! aperture, and it stores to [`PORT_RECORD_APERTURE`].
//!
//! Some of what a guest reports needs no record: a store to [`PORT_MARK`] makes a [`Mark`], for
//! which the guest has stored a text or numbers to [`PORT_TEXT`] before. By marks, a program can
//! begin and end a phase without using the Causeway function, whose registers cost exits.
#![no_std]

#[cfg(test)]
extern crate std;

mod compose;
mod marks;

pub use compose::{NoMail, Totals};
pub use marks::{PortStore, begin_phase, end_phase, report_totals};

use causeway_protocol::wire::{structures, wire_enum};

/// I/O port: a 4-byte store of the guest ends its VM. Zero means pass, any other value fail.
pub const PORT_EXIT: u16 = 0xca0;
/// I/O port: a 4-byte store of a guest-physical address hands the record there to the test device.
pub const PORT_RECORD: u16 = 0xca4;

/// I/O port: a 4-byte store of an offset in the aperture, in units of [`RECORD_UNIT_BYTES`], hands
/// the record there to the test device.
pub const PORT_RECORD_APERTURE: u16 = 0xca8;
/// Alignment of records in the aperture, and unit of the offsets that a guest stores to
/// [`PORT_RECORD_APERTURE`], in bytes.
pub const RECORD_UNIT_BYTES: u64 = 64;
/// I/O port: a 4-byte store adds its four bytes, the lowest first, to the text of the next mark.
pub const PORT_TEXT: u16 = 0xcac;
/// I/O port: a 4-byte store of the number of a [`Mark`] makes that mark. A 4-byte load returns
/// [`MARK_DONE`] or [`MARK_REFUSED`], and all-ones if the VM has no test device.
pub const PORT_MARK: u16 = 0xcb0;
/// Number of the test device's I/O ports, from [`PORT_EXIT`] on.
pub const PORTS: u16 = 20;
/// Maximum length of a mark's text in bytes. The device drops what is longer.
pub const TEXT_BYTES: usize = 48;
/// What a load from [`PORT_MARK`] returns if the device has acted on the last mark, or has had
/// none: "done" in ASCII.
pub const MARK_DONE: u32 = u32::from_le_bytes(*b"done");
/// What a load from [`PORT_MARK`] returns if the device has refused the last mark: "none" in ASCII.
pub const MARK_REFUSED: u32 = u32::from_le_bytes(*b"none");
/// Maximum number of single operations in a record.
pub const SINGLES_MAX: usize = 1000;
/// Number of mailboxes that the VMs of a run share.
pub const MAILBOXES: usize = 64;

wire_enum! {
    /// What a record asks the test device to do.
    pub enum RecordKind: u32 {
        /// [`PhaseBegin`]: sample both counts of exits, and begin a phase.
        PhaseBegin = 1,
        /// [`PhaseEnd`]: sample both counts of exits, and end the phase.
        PhaseEnd = 2,
        /// [`Figure`]: add a figure to the report.
        Figure = 3,
        /// [`Mail`]: put 64 bytes into a mailbox, for the other VMs of the run.
        Post = 4,
        /// [`Mail`]: fetch the mail in a mailbox; the host waits for mail if the mailbox is empty.
        Fetch = 5,
        /// [`Baseline`]: run a loop on a host thread over memory that the guest has mapped.
        Baseline = 6,
        /// [`Panic`]: report where and why the guest panicked.
        Panic = 7,
        /// [`RecordHeader`] only: park this virtual CPU, which has nothing more to do.
        Park = 8,
        /// [`Comparison`]: report a sample, whose operations the host repeats natively.
        Comparison = 9,
        /// [`Identity`]: tell the guest which VM of the run it is in.
        Identity = 10,
        /// [`Singles`]: report times of single operations, which the host repeats natively.
        Singles = 11,
    }
}

wire_enum! {
    /// What a store to [`PORT_MARK`] says. Each mark uses up the text.
    pub enum Mark: u32 {
        /// Forgets the text, which another program may have left.
        Forget = 0,
        /// Begins the life of the guest's program: samples both counts of exits.
        ProgramBegin = 1,
        /// Ends the life of the guest's program, and an open phase: samples both counts of exits.
        ProgramEnd = 2,
        /// Begins a phase of setup, named by the text: samples both counts of exits.
        SetupBegin = 16,
        /// Begins a phase of the control path, likewise.
        ControlBegin = 17,
        /// Begins a phase of the data path, likewise.
        DataBegin = 18,
        /// Ends the open phase: samples both counts of exits.
        PhaseEnd = 32,
        /// Says what the guest did in the phase that ended last: the text is three 64-bit numbers,
        /// which are operations, bytes and doorbells.
        Totals = 33,
    }
}

wire_enum! {
    /// What a phase of a guest's run exercises.
    pub enum PhasePath: u32 {
        /// Preparation and verification: the guest may do anything.
        Setup = 0,
        /// The control path (allocation, mapping, creation of command buffers): exits are expected,
        /// and counted per operation.
        Control = 1,
        /// The data path (loads, stores, packets, fences): the guest must not exit.
        Data = 2,
    }
}

wire_enum! {
    /// Loops that the host runs over the guest's memory, to compare with the guest's own loops
    /// (crate `causeway-kernels`, module `loops`).
    pub enum Loop: u32 {
        /// The loop stores 8-byte words.
        Store = 1,
        /// The loop loads 8-byte words.
        Load = 2,
    }
}

structures! {
    /// Header with which every record begins.
    pub struct RecordHeader {
        /// Number of the [`RecordKind`].
        pub kind: u32,
        /// Size of the record in bytes, with its header.
        pub bytes: u32,
    } = 8

    /// Begins a phase. Phases do not nest: a new phase ends one that is open.
    pub struct PhaseBegin {
        /// Header of the record.
        pub header: RecordHeader,
        /// What the phase exercises: number of the [`PhasePath`].
        pub path: u32,
        /// Number of bytes that are used in `name`.
        pub name_bytes: u32,
        /// Name of the phase, in UTF-8.
        pub name: [u8; 48],
    } = 64

    /// Ends the open phase.
    pub struct PhaseEnd {
        /// Header of the record.
        pub header: RecordHeader,
        /// Number of operations that the guest did in the phase.
        pub operations: u64,
        /// Number of bytes that the guest moved in the phase.
        pub bytes: u64,
        /// Number of doorbells that the guest rang in the phase.
        pub doorbells: u64,
    } = 32

    /// Adds a figure to the guest's report.
    pub struct Figure {
        /// Header of the record.
        pub header: RecordHeader,
        /// Value of the figure, as the bits of an IEEE 754 double.
        pub value_bits: u64,
        /// Number of bytes that are used in `name`.
        pub name_bytes: u32,
        /// Number of bytes that are used in `unit`; zero for a plain ratio.
        pub unit_bytes: u32,
        /// Name of the figure, in UTF-8.
        pub name: [u8; 64],
        /// Unit of the figure, in UTF-8.
        pub unit: [u8; 16],
    } = 104

    /// Puts mail into a mailbox for the other guests of the run, or fetches mail from a mailbox.
    pub struct Mail {
        /// Header of the record.
        pub header: RecordHeader,
        /// Number of the mailbox, below [`MAILBOXES`].
        pub mailbox: u32,
        /// To fetch: milliseconds that the host waits for mail. Reply: 1 if the mailbox has mail, 2
        /// if the mailbox is empty and another VM of the run has failed, else 0.
        pub wait: u32,
        /// The mail: to post, that of this guest; in a reply, that of another.
        pub data: [u8; 64],
    } = 80

    /// Runs a loop on a host thread over memory of the guest, as a baseline for the guest's own
    /// loop.
    pub struct Baseline {
        /// Header of the record.
        pub header: RecordHeader,
        /// Number of the [`Loop`] that the host runs.
        pub kind: u32,
        /// Number of times that the loop passes over the memory.
        pub passes: u32,
        /// Guest-physical address of the memory, in the aperture or in RAM; 64-byte aligned.
        pub address: u64,
        /// Size of the memory in bytes; a multiple of 64.
        pub bytes: u64,
        /// Reply: ticks of the guest's time stamp counter that the loop took, or zero if the memory
        /// is not mapped.
        pub ticks: u64,
    } = 40

    /// Reports a sample of a guest: how long it took for some operations. The host repeats the
    /// operations natively right after it.
    pub struct Comparison {
        /// Header of the record.
        pub header: RecordHeader,
        /// Number of the line in the table of `causeway bench gpu` to which the sample belongs.
        pub line: u32,
        /// Number of operations in the sample, not zero.
        pub operations: u32,
        /// Bytes that each operation moves; zero if it moves none.
        pub bytes: u64,
        /// Nanoseconds that the guest took for all operations.
        pub guest_ns: u64,
        /// Reply: nanoseconds that the host took for all operations, or zero if it does not do them
        /// natively.
        pub native_ns: u64,
    } = 40

    /// Reports how long single operations of a guest took. The host times as many natively, right
    /// after it. Only guests without an operating system can report them, because the times are in
    /// RAM.
    pub struct Singles {
        /// Header of the record.
        pub header: RecordHeader,
        /// Number of the line in the table of `causeway bench gpu` to which the operations belong.
        pub line: u32,
        /// Number of operations, at most [`SINGLES_MAX`]; zero if too few fit into the time that
        /// they may take.
        pub count: u32,
        /// Bytes that each operation moves; zero if it moves none.
        pub bytes: u64,
        /// Nanoseconds that the timer adds to each time.
        pub timer_ns: u64,
        /// Guest-physical address of the times in RAM: a 64-bit number of nanoseconds for each
        /// operation.
        pub address: u64,
    } = 40

    /// Asks which VM of the run the guest is in. A bare guest finds the same numbers in its boot
    /// page.
    pub struct Identity {
        /// Header of the record.
        pub header: RecordHeader,
        /// Reply: index of the VM in the run, from 0.
        pub vm: u32,
        /// Reply: number of VMs in the run. Stays zero if the VM has no test device.
        pub vms: u32,
    } = 16

    /// Reports where and why the guest panicked.
    pub struct Panic {
        /// Header of the record.
        pub header: RecordHeader,
        /// Line in the source file.
        pub line: u32,
        /// Number of bytes that are used in `file`.
        pub file_bytes: u32,
        /// Number of bytes that are used in `message`.
        pub message_bytes: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// Source file in which the guest panicked, in UTF-8.
        pub file: [u8; 128],
        /// Message of the panic, in UTF-8, cut if longer.
        pub message: [u8; 256],
    } = 408
}
