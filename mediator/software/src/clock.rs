//! The clock of the device: nanoseconds, monotonic, the same for timestamps and kernels.

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since the clock was first read in this process.
pub(crate) fn now_ns() -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = EPOCH.get_or_init(Instant::now);
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Time that this thread has run on a core, in nanoseconds.
pub(crate) fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanoseconds
}
