//! Comparisons: the host repeats natively what a guest has just done and timed.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_bench_workloads::Line;
use causeway_testdev_records::{self as wire, Comparison, RecordKind};
use serde::Serialize;

use crate::record::{RecordError, field};

/// Maximum number of samples that one guest can report.
pub const SAMPLES_MAX: usize = 65_536;
/// Maximum number of records with times of single operations that one guest can report.
pub const SINGLES_RECORDS_MAX: usize = 256;

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

/// Times of single operations of one line and size: those of the guest, and those that the host
/// took right after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Singles {
    /// The line in the table of `bench gpu` to which the operations belong.
    pub line: Line,
    /// Number of bytes that each operation moves; 0 if it moves none.
    pub bytes: u64,
    /// What the guest's timer adds to each of its times, in nanoseconds.
    pub timer_ns: u64,
    /// Times of the guest in nanoseconds; empty if too few operations fit into the time that they
    /// may take.
    pub guest_ns: Vec<u64>,
    /// Times of the host in nanoseconds; empty if the host did not repeat the operations.
    pub native_ns: Vec<u64>,
}

impl Singles {
    /// Checks `request`, by which a guest reports `guest_ns`, and repeats the operations by
    /// `counterpart`, if given, until `stop` is set.
    pub(crate) fn take(
        request: &wire::Singles,
        guest_ns: Vec<u64>,
        counterpart: Option<&dyn Counterpart>,
        stop: &AtomicBool,
    ) -> Result<Self, RecordError> {
        let line = Line::from_wire(request.line);
        let line = line.ok_or_else(|| field(RecordKind::Singles, "line", request.line))?;
        let native = |counterpart: &dyn Counterpart| singles(counterpart, line, request, stop);
        Ok(Self {
            line,
            bytes: request.bytes,
            timer_ns: request.timer_ns,
            guest_ns,
            native_ns: counterpart.map_or_else(Vec::new, native),
        })
    }
}

/// Times as many operations as `request` has one by one; fewer if one cannot be done, or `stop` is
/// set.
fn singles(
    counterpart: &dyn Counterpart,
    line: Line,
    request: &wire::Singles,
    stop: &AtomicBool,
) -> Vec<u64> {
    let running = (0..request.count).take_while(|_| !stop.load(Ordering::Relaxed));
    let times = running.map_while(|_| counterpart.measure(line, 1, request.bytes));
    times.map(|time| time.as_nanos() as u64).collect()
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
