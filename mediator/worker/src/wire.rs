//! The datagrams between a VMM and a worker.
//!
//! A datagram is a [`Head`], a body of the size of its kind, and for some kinds more bytes; it may
//! carry descriptors. Both ends are the same program; the version shows when they are not.

mod lease;

use causeway_mediator::statistics::STATISTICS_COUNT;
use causeway_mediator::{Client, Quota};
use causeway_memory::PageSize;
use causeway_protocol::message::{MemoryKind, TOKEN_BYTES};
use causeway_protocol::registers::CONTROL_BYTES_MAX;
use causeway_protocol::{Access, message, packet};
use causeway_sandbox::Mechanism;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The first 32 bits of every datagram.
pub(crate) const MAGIC: u32 = 0x4b57_5743;
/// Version of this protocol, which changes whenever a datagram changes.
pub(crate) const VERSION: u16 = 11;
/// Longest text of a fault, a refusal or a name, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 4096;
/// Largest datagram in bytes: a control batch with what goes before it, or a report.
pub(crate) const DATAGRAM_BYTES_MAX: usize = CONTROL_BYTES_MAX as usize + 1024;
/// Offsets in the status page, which the VMM reads without a message (64 bits each): the content of
/// register `Status`; which clients own something; [`Bursts`](causeway_mediator::Bursts), `begun`
/// in the upper half; and the two numbers of [`Pieces`](causeway_mediator::backend::Pieces).
pub(crate) const STATUS_WORD: u64 = 0;
pub(crate) const OWNERS_WORD: u64 = 8;
pub(crate) const BUSY_WORD: u64 = 16;
pub(crate) const BEGUN_WORD: u64 = 24;
pub(crate) const ENDED_WORD: u64 = 32;
/// Most descriptors beside a datagram: regions of RAM, the status page, a socket.
pub(crate) const DESCRIPTORS_MAX: usize = 4;
/// Maximum number of regions of guest RAM.
pub(crate) const RAM_REGIONS_MAX: usize = 2;

macro_rules! kinds {
    ($($(#[$attribute:meta])* $name:ident = $number:literal,)*) => {
        /// The kinds of datagrams, each with its content.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub(crate) enum Kind {
            $($(#[$attribute])* $name = $number,)*
        }

        impl Kind {
            pub fn from_wire(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    // The control socket, from the VMM.
    /// [`Start`], the VM's name; the spare socket, the status page, regions of RAM.
    Start = 1,
    /// A call channel: its socket.
    NewChannel = 2,
    /// See `GuestSession::interrupt`.
    Interrupt = 3,
    /// See `GuestSession::halt`.
    Halt = 4,
    /// Nothing. Sent at most once, before [`Kind::Start`]: the back end is wanted ahead of the
    /// session.
    Prepare = 7,
    /// A lease channel: its socket.
    NewLease = 9,
    // The socket of the process that starts workers, from the VMM.
    /// The folder for groups of workers, or nothing; the bytes that each may use; the path of the
    /// workers' program, and its arguments; each ended by a zero byte. Sent once, first.
    Program = 10,
    /// [`StartWorker`]; the worker's standard input.
    StartWorker = 11,
    // The same socket, to the VMM.
    /// [`WorkerStarted`]; the worker's pidfd, and maybe its `/proc/PID/status`.
    WorkerStarted = 12,

    // The control socket, from the worker.
    /// [`Started`], the name of the back end.
    Started = 5,
    /// Why there is no back end, as text.
    Refused = 6,
    /// Nothing. The answer to [`Kind::Prepare`]: the back end is there.
    Prepared = 8,

    // Call channels, from the VMM; each is answered by the kind that follows.
    /// [`ForClient`], a batch.
    Execute = 16,
    /// [`Executed`], the batch with its replies.
    Executed = 17,
    /// Nothing.
    Reset = 18,
    /// [`ResetDone`].
    ResetDone = 19,
    /// Nothing.
    Close = 20,
    /// Nothing.
    Closed = 21,
    /// Nothing.
    Report = 22,
    /// [`Reported`], text of the fault, what the binary adds.
    Reported = 23,
    /// [`RevokeImport`].
    RevokeImport = 24,
    /// Nothing.
    ImportRevoked = 25,
    /// [`ForClient`].
    ResetClient = 26,
    /// [`ResetDone`].
    ClientReset = 27,
    /// Nothing.
    Sample = 28,
    /// [`Sampled`].
    Sampled = 29,
    /// [`SetLimits`].
    SetLimits = 30,
    /// Nothing.
    LimitsSet = 31,

    // Call channels, from the worker; each is answered by `Answer`.
    /// [`Place`]; descriptor of the memory.
    Place = 32,
    /// [`SetAccess`].
    SetAccess = 33,
    /// [`Remove`].
    Remove = 34,
    /// [`BindDoorbell`]; the event, the memory object of the command buffer.
    BindDoorbell = 35,
    /// [`UnbindDoorbell`].
    UnbindDoorbell = 36,
    /// [`Publish`]; descriptor of the memory.
    Publish = 37,
    /// [`Fetch`].
    Fetch = 38,
    /// [`Registration`].
    Register = 39,
    /// [`Registration`].
    Forget = 40,
    /// [`Withdraw`].
    Withdraw = 41,
    /// [`ForClient`].
    Raise = 42,
    /// [`Answer`]; for `Fetch`, the descriptor of the memory.
    Answer = 48,

    // Lease channels: from the VMM, and from the worker. Nothing is answered.
    /// [`Lease`].
    Lease = 50,
    /// [`LeaseReported`].
    LeaseReported = 51,
}

/// A body, or the head.
pub(crate) trait Wire: FromBytes + IntoBytes + Immutable + KnownLayout {}
impl<T: FromBytes + IntoBytes + Immutable + KnownLayout> Wire for T {}

macro_rules! bodies {
    ($(
        $(#[$attribute:meta])*
        $name:ident ($bytes:expr) {
            $($(#[$field_attribute:meta])* $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $($(#[$field_attribute])* pub $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $bytes);
    )*};
}

bodies! {
    /// Begins every datagram.
    Head(8) {
        magic: u32,
        version: u16,
        kind: u16,
    }

    /// The session that a worker is for.
    Start(8 * Quota::LIMITS + 48) {
        /// `Quota::limits`.
        quota: [u64; Quota::LIMITS],
        ram: [Region; RAM_REGIONS_MAX],
        /// Number of the session.
        session: u64,
        /// Valid entries of `ram`.
        regions: u32,
        reserved: u32,
    }

    /// A region of guest RAM; its object is a descriptor beside the datagram.
    Region(16) {
        base: u64,
        /// [`page_size`].
        pages: u32,
        reserved: u32,
    }

    /// What the back end is; its name follows.
    Started(80) {
        /// See `Equipment::device`; zero without one.
        device: [u8; 16],
        memory_bytes: u64,
        granularity_bytes: u64,
        va_start: u64,
        va_end: u64,
        features: u64,
        compute_units: u32,
        warp_threads: u32,
        block_threads_max: u32,
        shared_bytes_max: u32,
        /// What the host lacks to confine the worker: see [`lacking`].
        lacking: u32,
        /// 1 if work runs behind its submission, so that the VMM is to watch how long it takes.
        runs_behind: u32,
    }

    /// A worker to start.
    StartWorker(4) {
        /// Number of the partition that its session holds.
        partition: u32,
    }

    /// A worker that was started, or not.
    WorkerStarted(8) {
        /// Its process ID; zero if there is none.
        pid: u32,
        /// Why it does not execute its program; zero if it does.
        errno: u32,
    }

    /// Which client is meant.
    ForClient(8) {
        client: u32,
        reserved: u32,
    }

    /// How a batch was taken; the batch follows.
    Executed(8) {
        status: u32,
        reserved: u32,
    }

    /// The outcome of a reset.
    ResetDone(8) {
        /// 1 if the back end is poisoned, so that another process must take over.
        poisoned: u32,
        reserved: u32,
    }

    /// A report. The text of the fault and what the binary adds follow.
    Reported(8 * (STATISTICS_COUNT + message::Opcode::SLOTS + packet::Opcode::SLOTS + 1)) {
        statistics: [u64; STATISTICS_COUNT],
        /// By opcode.
        messages: [u64; message::Opcode::SLOTS],
        /// By opcode.
        packets: [u64; packet::Opcode::SLOTS],
        /// Zero if there is no fault.
        fault_status: u32,
        /// Bytes of its text.
        fault_bytes: u32,
    }

    /// What a session is doing: `Activity`.
    Sampled(8 * (STATISTICS_COUNT + 1)) {
        statistics: [u64; STATISTICS_COUNT],
        /// 1 if the session is lost.
        lost: u64,
    }

    /// The limits that a session has from now on.
    SetLimits(8 * Quota::LIMITS) {
        /// `Quota::limits`.
        quota: [u64; Quota::LIMITS],
    }

    /// Which import to take away.
    RevokeImport(16) {
        handle: u32,
        reserved: u32,
        import: u64,
    }

    /// See `Host::place`.
    Place(32) {
        /// In the memory behind the descriptor.
        offset: u64,
        bytes: u64,
        /// Size of the memory: of a device's; host memory says its own.
        memory_bytes: u64,
        /// Of the protocol.
        access: u16,
        /// [`Placed`].
        kind: u16,
        /// [`page_size`] of host memory.
        pages: u32,
    }

    /// See `Host::set_access`.
    SetAccess(16) {
        offset: u64,
        access: u32,
        reserved: u32,
    }

    /// See `Host::remove`.
    Remove(8) {
        offset: u64,
    }

    /// See `Host::bind_doorbell`.
    BindDoorbell(16) {
        index: u32,
        reserved: u32,
        /// Of the command buffer in its memory.
        ring_offset: u64,
    }

    /// See `Host::unbind_doorbell`.
    UnbindDoorbell(8) {
        index: u32,
        reserved: u32,
    }

    /// An export; its descriptor is beside the datagram.
    Publish(40) {
        bytes: u64,
        memory: Memory,
        /// The GPUs whose sessions can import it, by their numbers: bit `n` stands for GPU `n`.
        gpus: u64,
    }

    /// What exported memory is.
    Memory(24) {
        /// In a memory object.
        offset: u64,
        /// Kind of the descriptor, of the protocol.
        made_of: u32,
        /// Kind that it was allocated as, of the protocol.
        kind: u32,
        /// [`page_size`] of a memory object.
        pages: u32,
        /// Rights at most, of the protocol.
        access: u32,
    }

    /// Which offer is wanted.
    Fetch(40) {
        token: [u8; TOKEN_BYTES],
        access: u32,
        reserved: u32,
    }

    /// An import.
    Registration(48) {
        token: [u8; TOKEN_BYTES],
        handle: u32,
        reserved: u32,
        import: u64,
    }

    /// Which export to withdraw.
    Withdraw(32) {
        token: [u8; TOKEN_BYTES],
    }

    /// See `causeway_mediator::LeaseOrder`.
    Lease(16) {
        /// [`lease::Order`].
        order: u32,
        /// Of the lease, with [`lease::Order::Grant`].
        number: u32,
        /// Of [`lease::Order::Return`].
        within_ns: u64,
    }

    /// A `causeway_mediator::LeaseReport`.
    LeaseReported(8) {
        /// [`lease::Report`].
        report: u32,
        /// Of the lease; zero with [`lease::Report::Wanted`].
        number: u32,
    }

    /// How a call went.
    Answer(80) {
        /// [`Outcome`], or a status of the protocol for sharing calls.
        outcome: u32,
        /// Number of the operating system's error, where there is one.
        errno: u32,
        /// Offset in the aperture; size of memory that was fetched.
        value: u64,
        token: [u8; TOKEN_BYTES],
        memory: Memory,
        /// The GPU whose session exported memory that was fetched.
        gpu: u32,
        reserved: u32,
    }
}

impl ForClient {
    pub fn new(client: Client) -> Self {
        let client = client.number();
        let reserved = 0;
        Self { client, reserved }
    }
}

impl Answer {
    pub fn new(outcome: u32) -> Self {
        Self {
            outcome,
            ..Self::new_zeroed()
        }
    }
}

/// How a call of the host went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Outcome {
    Done = 0,
    /// The aperture is full.
    Full = 1,
    /// The memory cannot be mapped.
    Map = 2,
    /// The hypervisor refused.
    Slot = 3,
    /// Nothing is placed there.
    Absent = 4,
}

/// What is behind the descriptor of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Placed {
    Host = 1,
    Device = 2,
}

/// Returns a set of mechanisms as bits: that of a mechanism is its place in [`Mechanism::ALL`].
pub(crate) fn lacking_bits(mechanisms: impl Iterator<Item = Mechanism>) -> u32 {
    let place = |mechanism| Mechanism::ALL.iter().position(|it| *it == mechanism);
    mechanisms
        .filter_map(place)
        .fold(0, |bits, place| bits | 1 << place)
}

/// Returns the mechanisms of [`Started::lacking`]. Other bits are ignored.
pub(crate) fn lacking(bits: u32) -> impl Iterator<Item = Mechanism> {
    let all = Mechanism::ALL.into_iter().enumerate();
    all.filter(move |(place, _)| bits & (1 << place) != 0)
        .map(|(_, mechanism)| mechanism)
}

/// Returns the number that stands for a page size in datagrams.
pub(crate) fn page_size(pages: PageSize) -> u32 {
    match pages {
        PageSize::Small => 0,
        PageSize::Large => 1,
    }
}

/// Returns the page size that a number in a datagram stands for. Every number is valid.
pub(crate) fn page_size_from_wire(pages: u32) -> PageSize {
    match pages {
        0 => PageSize::Small,
        _ => PageSize::Large,
    }
}

impl Memory {
    /// Returns the kind of memory behind the file descriptor, the kind that the exporting guest
    /// allocated, and the widest access rights of an importer; `None` if one of these values is
    /// invalid.
    pub fn checked(&self) -> Option<(MemoryKind, MemoryKind, Access)> {
        Some((
            MemoryKind::from_wire(self.made_of)?,
            MemoryKind::from_wire(self.kind)?,
            Access::from_wire(self.access)?,
        ))
    }
}
