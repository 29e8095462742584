//! How much memory this process may lock: what devices reach by DMA stays in place, and is
//! accounted as such.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::host::Host;

/// Bit of CAP_IPC_LOCK (linux/capability.h), with which there is no limit.
const CAP_IPC_LOCK: u32 = 14;

/// What a process may lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockedMemory {
    /// Maximum number of bytes (RLIMIT_MEMLOCK); `None` if there is no limit.
    pub(crate) limit: Option<u64>,
    /// Bytes that are locked now.
    pub(crate) used: u64,
}

impl LockedMemory {
    /// Returns what this process may lock.
    pub(crate) fn of_this_process(host: &Host) -> Self {
        let status = fs::read_to_string(host.path("/proc/self/status")).unwrap_or_default();
        Self::from_status(&status, getrlimit(Resource::Memlock).current)
    }

    fn from_status(status: &str, limit: Option<u64>) -> Self {
        let value = |name| {
            let mut lines = status.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let capabilities = value("CapEff:").and_then(|text| u64::from_str_radix(text, 16).ok());
        let exempt = capabilities.is_some_and(|set| set & (1 << CAP_IPC_LOCK) != 0);
        let locked = value("VmLck:").and_then(|text| text.split_whitespace().next());
        let locked_kib = locked.and_then(|number| number.parse::<u64>().ok());
        Self {
            limit: limit.filter(|_| !exempt),
            used: locked_kib.unwrap_or(0).saturating_mul(1024),
        }
    }

    /// Returns whether so many bytes more can be locked.
    pub(crate) fn allows(&self, bytes: u64) -> bool {
        let total = self.used.saturating_add(bytes);
        self.limit.is_none_or(|limit| total <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tcauseway\nVmLck:\t      64 kB\nCapEff:\t0000000000000000\n";

    #[test]
    fn what_is_locked_already_counts() {
        let memory = LockedMemory::from_status(STATUS, Some(128 << 10));
        assert_eq!(memory.used, 64 << 10);
        assert!(memory.allows(64 << 10));
        assert!(!memory.allows((64 << 10) + 1));
        assert!(!memory.allows(u64::MAX));
    }

    #[test]
    fn who_may_lock_memory_has_no_limit() {
        let privileged = STATUS.replace("0000000000000000", "000001ffffffffff");
        let memory = LockedMemory::from_status(&privileged, Some(0));
        assert!(memory.allows(1 << 40));
        let all_but = STATUS.replace("0000000000000000", "000001ffffffbfff");
        assert!(!LockedMemory::from_status(&all_but, Some(0)).allows(1));
    }
}
