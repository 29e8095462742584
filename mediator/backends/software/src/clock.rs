//! Clocks: that of the device, and what a thread has taken of a core.

pub(crate) use causeway_cpu_queue::clock::now_ns;

/// Returns how long this thread has run on a core, in nanoseconds.
pub(crate) fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanoseconds
}
