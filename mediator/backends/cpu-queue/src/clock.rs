//! The clock of devices whose work this process executes, and the clock of a thread's processor
//! time. Both count nanoseconds.

use std::sync::OnceLock;
use std::time::Instant;

/// Returns the time in nanoseconds since this process first called this function. The clock never
/// goes back.
pub fn now_ns() -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = EPOCH.get_or_init(Instant::now);
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns how long this thread has run on a core, in nanoseconds. It is a system call.
pub fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanoseconds
}
