//! Results of records.

use causeway_mediator::host::RamError;
use causeway_testdev_records::RecordKind;
use serde::Serialize;

/// A figure for the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name.
    pub name: String,
    /// The figure; finite.
    pub value: f64,
    /// Unit; empty for a plain ratio.
    pub unit: String,
}

/// Where and why a guest panicked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PanicInfo {
    /// Source file.
    pub file: String,
    /// Line in it.
    pub line: u32,
    /// Message.
    pub message: String,
}

/// What the device did with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Recorded {
    /// The device acted on it.
    Done,
    /// The virtual CPU asks to be parked.
    Park,
    /// The record is invalid; the device did nothing.
    Refused(RecordError),
}

/// Why a record is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The address is not 8-byte aligned.
    #[error("record address {address:#x} is not 8-byte aligned")]
    Misaligned {
        /// Guest-physical address.
        address: u64,
    },
    /// The record is not in one mapping of host memory in the aperture that the guest may write.
    #[error("no host memory that the guest may write at aperture offset {offset:#x}")]
    NotMapped {
        /// Offset into the aperture.
        offset: u64,
    },
    /// The record is not in guest RAM.
    #[error("the record is not in guest RAM")]
    NotRam(#[from] RamError),
    /// The kind is unknown.
    #[error("unknown record kind {kind}")]
    Kind {
        /// Kind.
        kind: u32,
    },
    /// The size is not that of the kind.
    #[error("a {kind:?} record has {wanted} bytes, not {bytes}")]
    Bytes {
        /// Kind.
        kind: RecordKind,
        /// Size in the record's header.
        bytes: u32,
        /// Size of the kind.
        wanted: usize,
    },
    /// A field has an invalid value.
    #[error("invalid value {value} for {field} of a {kind:?} record")]
    Field {
        /// Kind.
        kind: RecordKind,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The guest has reported the most records of this kind.
    #[error("more than {max} {kind:?} records")]
    TooMany {
        /// Kind.
        kind: RecordKind,
        /// Most records of this kind.
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
