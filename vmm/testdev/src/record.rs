//! What comes of a record.

use causeway_mediator::host::RamError;
use causeway_protocol::harness::RecordKind;
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

/// A guest's last words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PanicInfo {
    /// Source file.
    pub file: String,
    /// Line in it.
    pub line: u32,
    /// Message.
    pub message: String,
}

/// What a record did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Recorded {
    /// It was acted upon.
    Done,
    /// The virtual CPU has nothing more to do.
    Park,
    /// It makes no sense; nothing was done.
    Refused(RecordError),
}

/// Why a record makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Its address is not 8-byte aligned.
    #[error("a record at {address:#x} is not 8-byte aligned")]
    Misaligned {
        /// Guest-physical address.
        address: u64,
    },
    /// It is not in one mapping of host memory in the aperture that the guest may write.
    #[error(
        "a record at aperture offset {offset:#x} is not in host memory that the guest may write"
    )]
    NotMapped {
        /// Offset into the aperture.
        offset: u64,
    },
    /// It is not in guest RAM.
    #[error("a record is not in guest RAM")]
    NotRam(#[from] RamError),
    /// No such kind.
    #[error("there is no record of kind {kind}")]
    Kind {
        /// Kind.
        kind: u32,
    },
    /// Not the size of its kind.
    #[error("a {kind:?} record says {bytes} bytes instead of {wanted}")]
    Bytes {
        /// Kind.
        kind: RecordKind,
        /// What it says.
        bytes: u32,
        /// What it must say.
        wanted: usize,
    },
    /// A field has a value that means nothing.
    #[error("{field} of a {kind:?} record cannot be {value}")]
    Field {
        /// Kind.
        kind: RecordKind,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// There are too many already.
    #[error("there are {max} {kind:?} records already")]
    TooMany {
        /// Kind.
        kind: RecordKind,
        /// How many there may be.
        max: usize,
    },
}

/// A field that has a value which means nothing.
pub(super) fn field(kind: RecordKind, field: &'static str, value: impl Into<u64>) -> RecordError {
    RecordError::Field {
        kind,
        field,
        value: value.into(),
    }
}
