//! Records for the test bench (see [`causeway_protocol::harness`]). Each is one exit.

use core::fmt;

use causeway_protocol::harness::{
    Baseline, Comparison, Letter, Line, Loop, PORT_EXIT, PORT_RECORD, PhaseBegin, PhaseEnd,
    PhasePath, Ratio, RecordHeader, RecordKind,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::port;

pub(crate) const fn header<R>(kind: RecordKind) -> RecordHeader {
    RecordHeader {
        kind: kind as u32,
        bytes: size_of::<R>() as u32,
    }
}

/// Hands a record over; the host may write a reply into it.
pub(crate) fn send<R: IntoBytes + FromBytes>(record: &mut R) {
    let bytes = record.as_mut_bytes();
    let address = bytes.as_mut_ptr() as usize;
    // Stacks and statics lie in the image, which lies below 4 GiB, one to one.
    port::write_u32(PORT_RECORD, address as u32);
}

/// Bytes of `text` that fit into `room` bytes without cutting a character.
pub(crate) fn cut_length(text: &str, room: usize) -> usize {
    let longest = text.len().min(room);
    (0..=longest)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// `text` cut to the room, and the bytes used.
fn cut<const BYTES: usize>(text: &str) -> ([u8; BYTES], u32) {
    let used = cut_length(text, BYTES);
    let mut room = [0; BYTES];
    room[..used].copy_from_slice(&text.as_bytes()[..used]);
    (room, used as u32)
}

/// What was done in a phase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Operations.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Doorbells rung.
    pub doorbells: u64,
}

/// A phase of the workload, between whose ends the host counts exits. Phases do not nest.
#[derive(Debug)]
#[must_use = "a phase lasts until it is ended"]
pub struct Phase(());

impl Phase {
    /// Begins a phase.
    pub fn begin(path: PhasePath, name: &str) -> Self {
        let (name, name_bytes) = cut(name);
        send(&mut PhaseBegin {
            header: header::<PhaseBegin>(RecordKind::PhaseBegin),
            path: path as u32,
            name_bytes,
            name,
        });
        Self(())
    }

    /// Ends it.
    pub fn end(self, totals: Totals) {
        let Totals {
            operations,
            bytes,
            doorbells,
        } = totals;
        send(&mut PhaseEnd {
            header: header::<PhaseEnd>(RecordKind::PhaseEnd),
            operations,
            bytes,
            doorbells,
        });
    }
}

/// Reports a figure with its unit.
pub fn figure(name: &str, value: f64, unit: &str) {
    let (name, name_bytes) = cut(name);
    let (unit, unit_bytes) = cut(unit);
    send(&mut Ratio {
        header: header::<Ratio>(RecordKind::Ratio),
        value_bits: value.to_bits(),
        name_bytes,
        unit_bytes,
        name,
        unit,
    });
}

/// Reports a plain ratio.
pub fn ratio(name: &str, value: f64) {
    figure(name, value, "");
}

/// Leaves a letter for the other VMs of the run in box `slot`, below 64.
pub fn post(slot: u32, data: &[u8; 64]) {
    send(&mut Letter {
        header: header::<Letter>(RecordKind::Post),
        slot,
        wait: 0,
        data: *data,
    });
}

/// Why there is no letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLetter {
    /// None has been left so far.
    NotYet,
    /// None will be that is worth waiting for: a VM of the run has ended without passing.
    Hopeless,
}

impl fmt::Display for NoLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotYet => "there is none so far",
            Self::Hopeless => "another VM of the run has failed",
        })
    }
}

/// Fetches the letter in box `slot`, waiting up to `wait_ms` milliseconds for it.
///
/// # Errors
/// There is none.
pub fn fetch(slot: u32, wait_ms: u32) -> Result<[u8; 64], NoLetter> {
    let header = header::<Letter>(RecordKind::Fetch);
    let mut letter = Letter {
        header,
        slot,
        wait: wait_ms,
        data: [0; 64],
    };
    send(&mut letter);
    match letter.wait {
        1 => Ok(letter.data),
        2 => Err(NoLetter::Hopeless),
        _ => Err(NoLetter::NotYet),
    }
}

/// Runs a loop on a host thread, over memory that this guest has mapped: `bytes` bytes (a multiple of 64)
/// at a guest-physical address (64-byte aligned). Gives the ticks it took; `None` if the memory is not mapped.
#[must_use]
pub fn baseline(kind: Loop, address: u64, bytes: u64, passes: u32) -> Option<u64> {
    let header = header::<Baseline>(RecordKind::Baseline);
    let mut record = Baseline {
        header,
        kind: kind as u32,
        passes,
        address,
        bytes,
        ticks: 0,
    };
    send(&mut record);
    (record.ticks != 0).then_some(record.ticks)
}

/// Hands over a sample: `operations` operations (not zero) of `bytes` bytes each took `guest_ns` nanoseconds. The host
/// does the same natively and gives the nanoseconds that it took; `None` if it cannot do this.
pub fn compare(line: Line, operations: u32, bytes: u64, guest_ns: u64) -> Option<u64> {
    let mut record = Comparison {
        header: header::<Comparison>(RecordKind::Comparison),
        line: line as u32,
        operations,
        bytes,
        guest_ns,
        native_ns: 0,
    };
    send(&mut record);
    (record.native_ns != 0).then_some(record.native_ns)
}

/// Ends the guest: zero is pass, anything else is fail.
pub fn exit(code: u32) -> ! {
    port::write_u32(PORT_EXIT, code);
    loop {
        core::hint::spin_loop();
    }
}

/// Parks this CPU: it has nothing more to do.
pub fn park() -> ! {
    send(&mut header::<RecordHeader>(RecordKind::Park));
    loop {
        core::hint::spin_loop();
    }
}
