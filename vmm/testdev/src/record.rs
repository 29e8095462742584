//! Results of records.

use causeway_mediator::host::RamError;
use causeway_testdev_records::{Mark, RecordKind};
use serde::Serialize;

/// A figure that a guest has reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figure {
    /// Name of the figure.
    pub name: String,
    /// Value of the figure, which is finite.
    pub value: f64,
    /// Unit of the value; empty for a plain ratio.
    pub unit: String,
}

/// Where and why a guest panicked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PanicInfo {
    /// Source file in which the guest panicked.
    pub file: String,
    /// Line in the source file.
    pub line: u32,
    /// Message of the panic.
    pub message: String,
}

/// What the test device did with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Recorded {
    /// The device acted on the record.
    Done,
    /// The record asks to park the virtual CPU, which has nothing more to do.
    Park,
    /// The record is invalid, and the device did nothing.
    Refused(RecordError),
}

/// Why the test device refuses a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record's guest-physical address is not 8-byte aligned.
    #[error(
        "the guest's record for the test device is at {address:#x}, an address that is not 8-byte \
         aligned"
    )]
    Misaligned {
        /// Guest-physical address of the record.
        address: u64,
    },
    /// The record in the aperture is not in a single mapping of host memory that the guest may
    /// write.
    #[error(
        "the guest's record for the test device is at aperture offset {offset:#x}, at which the \
         guest has no writable mapping of host memory"
    )]
    NotMapped {
        /// Offset of the record in the aperture.
        offset: u64,
    },
    /// The record is not in guest RAM.
    #[error("the guest's record for the test device is not in guest RAM")]
    NotRam(#[from] RamError),
    /// The run has no mailboxes.
    #[error(
        "the guest's record for the test device is mail, but guests of this run exchange none: \
         start the run with --mailboxes"
    )]
    Mail,
    /// The record's kind is unknown.
    #[error(
        "the guest's record for the test device is of unknown kind {kind}: build the guest for \
         this version of Causeway"
    )]
    Kind {
        /// Kind in the record's header.
        kind: u32,
    },
    /// The record's size is not that of its kind.
    #[error(
        "the guest's {kind:?} record for the test device has {bytes} bytes: it must have {wanted}"
    )]
    Bytes {
        /// Kind of the record.
        kind: RecordKind,
        /// Size in the record's header, in bytes.
        bytes: u32,
        /// Size of records of this kind, in bytes.
        wanted: usize,
    },
    /// A field of the record has an invalid value.
    #[error(
        "the guest's {kind:?} record for the test device has invalid value {value} in field {field}"
    )]
    Field {
        /// Kind of the record.
        kind: RecordKind,
        /// Name of the invalid field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// The number of a mark is unknown.
    #[error("the guest's mark for the test device has unknown number {number}")]
    Mark {
        /// Number that the guest stored to the port of marks.
        number: u32,
    },
    /// A mark is not possible now: the program has begun or ended already, or has not begun.
    #[error("the guest's mark {mark:?} for the test device comes out of order")]
    Order {
        /// The mark.
        mark: Mark,
    },
    /// A phase cannot begin, because the VM has come to its end.
    #[error("the test device begins no phase, because the VM has come to its end")]
    Ended,
    /// The guest has reported as many records of this kind as it may.
    #[error(
        "the test device cannot keep another {kind:?} record: the guest has reported {max}, the \
         maximum"
    )]
    TooMany {
        /// Kind of the record.
        kind: RecordKind,
        /// Maximum number of records of this kind that a guest can report.
        max: usize,
    },
}

/// Returns the error for an invalid value of a field.
pub(crate) fn field(kind: RecordKind, field: &'static str, value: impl Into<u64>) -> RecordError {
    RecordError::Field {
        kind,
        field,
        value: value.into(),
    }
}
