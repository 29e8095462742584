//! Comparisons: what a guest has just done and timed, done natively on the host right after it.

use std::fmt::Debug;
use std::time::Duration;

use causeway_protocol::harness::{Comparison, Line, RecordKind};
use serde::Serialize;

use super::{RecordError, field};

/// Most samples of a guest.
pub const SAMPLES_MAX: usize = 65_536;

/// Does natively, in this process and without a VM, what guests do by way of the mediator.
pub trait Counterpart: Send + Sync + Debug {
    /// Does `operations` operations of `bytes` bytes each, and gives the time they took together. `None` for what it
    /// cannot do.
    fn measure(&self, line: Line, operations: u32, bytes: u64) -> Option<Duration>;
}

/// One sample, of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Line of the table.
    #[serde(skip)]
    pub line: Line,
    /// Operations in the sample.
    pub operations: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// What the guest took for all of them, in nanoseconds.
    pub guest_ns: u64,
    /// What the host took natively; none if it cannot do this.
    pub native_ns: Option<u64>,
}

impl Sample {
    /// Checks what a guest says, and has the same done natively.
    pub(super) fn take(
        request: &Comparison,
        counterpart: Option<&dyn Counterpart>,
    ) -> Result<Self, RecordError> {
        let refuse = |name, value: u64| field(RecordKind::Comparison, name, value);
        let line = Line::from_wire(request.line);
        let line = line.ok_or_else(|| refuse("line", request.line.into()))?;
        if request.operations == 0 {
            return Err(refuse("operations", 0));
        }
        let native = counterpart.and_then(|c| c.measure(line, request.operations, request.bytes));
        Ok(Self {
            line,
            operations: request.operations,
            bytes: request.bytes,
            guest_ns: request.guest_ns,
            // At least one: zero means something else to the guest.
            native_ns: native.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)),
        })
    }
}
