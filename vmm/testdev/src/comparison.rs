//! Comparisons: the host repeats natively what a guest has just done and timed.

use std::fmt::Debug;
use std::time::Duration;

use causeway_bench_workloads::Line;
use causeway_testdev_records::{Comparison, RecordKind};
use serde::Serialize;

use crate::record::{RecordError, field};

/// Maximum number of samples that one guest can report.
pub const SAMPLES_MAX: usize = 65_536;

/// Repeats natively (in this process, without a VM) GPU operations that a guest has done through
/// the mediator, to compare the times.
pub trait Counterpart: Send + Sync + Debug {
    /// Does `operations` operations of `bytes` bytes each as in this line of `bench gpu`, and
    /// returns the time of all of them. Returns `None` if the line has no native form.
    fn measure(&self, line: Line, operations: u32, bytes: u64) -> Option<Duration>;
}

/// One comparison: the time that the guest took for some operations, and the time that the host
/// took for the same operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The line in the table of `bench gpu` to which the sample belongs.
    #[serde(skip)]
    pub line: Line,
    /// Number of operations in the sample.
    pub operations: u32,
    /// Number of bytes that each operation moves; 0 if it moves none.
    pub bytes: u64,
    /// Time that the guest took for all operations, in nanoseconds.
    pub guest_ns: u64,
    /// Time that the host took for all operations, in nanoseconds; `None` if the host did not
    /// repeat them, because the run has no [`Counterpart`] or the line has no native form.
    pub native_ns: Option<u64>,
}

impl Sample {
    /// Checks `request`, the sample that a guest reports, repeats its operations by `counterpart`,
    /// if given, and returns the guest's and the host's time.
    pub(crate) fn take(
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
