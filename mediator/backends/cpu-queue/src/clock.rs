//! The clock of devices whose work is done by this process: nanoseconds, monotonic.

use std::sync::OnceLock;
use std::time::Instant;

/// Returns the time in nanoseconds since this process first called this function. The clock never
/// goes back.
pub fn now_ns() -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = EPOCH.get_or_init(Instant::now);
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
