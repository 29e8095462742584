//! The file descriptors and mappings that a process may have, which all its sessions share.

use causeway_mediator::Quota;
use rustix::process::{Resource, getrlimit};

/// Mappings of a process if the kernel does not say how many it may have.
const MAPPINGS_USUAL: u64 = 65_530;
/// Mappings for everything but allocations.
const MAPPINGS_FOR_OTHERS: u64 = 4000;
/// Mappings that an allocation may need: its own, its place in the aperture, the hole behind that,
/// and two that these split.
const MAPPINGS_PER_ALLOCATION: u64 = 5;
/// Descriptors for everything that belongs to no session.
const DESCRIPTORS_FOR_OTHERS: u64 = 64;
/// Descriptors of a session without its allocations and command buffers: virtual CPUs, guest RAM,
/// interrupts, disks, a worker process.
const DESCRIPTORS_PER_SESSION: u64 = 64;
/// Descriptors of a command buffer: its doorbell, and its memory, which may outlive the allocation.
const DESCRIPTORS_PER_COMMAND_BUFFER: u64 = 2;

/// How many file descriptors and mappings a process may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostLimits {
    descriptors: u64,
    mappings: u64,
}

impl HostLimits {
    #[cfg(test)]
    pub fn new(descriptors: u64, mappings: u64) -> Self {
        Self {
            descriptors,
            mappings,
        }
    }

    /// Reads the limits of this process. The limit on descriptors is the hard one, because commands
    /// raise the soft one to it.
    pub fn read() -> Self {
        let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let mappings = mappings.and_then(|text| text.trim().parse().ok());
        Self {
            descriptors: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            mappings: mappings.unwrap_or(MAPPINGS_USUAL),
        }
    }

    /// Returns how many allocations each of `sessions` sessions can make at the same time as all
    /// others, if each may have `command_buffers` command buffers.
    pub fn allocations(self, sessions: u32, command_buffers: u64) -> u64 {
        let sessions = u64::from(sessions.max(1));
        let mappings = self.mappings.saturating_sub(MAPPINGS_FOR_OTHERS);
        let taken = descriptors_of_others(sessions, command_buffers);
        let descriptors = self.descriptors.saturating_sub(taken);
        (mappings / MAPPINGS_PER_ALLOCATION).min(descriptors) / sessions
    }

    /// Returns what is too low for `sessions` sessions that use all of their limits `quota`, and
    /// the way out; `None` if nothing is.
    pub fn shortage(self, sessions: u32, quota: &Quota) -> Option<String> {
        let count = u64::from(sessions);
        let allocations = count.saturating_mul(quota.allocations);
        let others = descriptors_of_others(count, quota.command_buffers);
        let short = self.short(allocations, others)?;
        let plural = if sessions == 1 { "" } else { "s" };
        Some(format!(
            "{sessions} session{plural} with {} allocations and {} command buffers each may need \
             {short}; raise the limit, or lower allocations= or queues= of --gpu",
            quota.allocations, quota.command_buffers,
        ))
    }

    /// Returns the same for sessions that use all of their limits `quotas`.
    pub fn shortage_of(self, quotas: &[Quota]) -> Option<String> {
        let sum = |part: fn(&Quota) -> u64| quotas.iter().map(part).fold(0, u64::saturating_add);
        let allocations = sum(|quota| quota.allocations);
        let others = sum(|quota| descriptors_of_session(quota.command_buffers));
        let short = self.short(allocations, others.saturating_add(DESCRIPTORS_FOR_OTHERS))?;
        let sessions = quotas.len();
        Some(format!(
            "with these limits, {sessions} sessions with {allocations} allocations in all may need \
             {short}; raise the limit, or lower allocations= or queues="
        ))
    }

    /// Returns what is too low for so many allocations, and `others` descriptors, and what follows.
    fn short(self, allocations: u64, others: u64) -> Option<String> {
        let descriptors = others.saturating_add(allocations);
        let mappings = allocations.saturating_mul(MAPPINGS_PER_ALLOCATION);
        let mappings = mappings.saturating_add(MAPPINGS_FOR_OTHERS);
        let limits = [
            (
                descriptors,
                self.descriptors,
                "file descriptors",
                "`ulimit -Hn`",
            ),
            (
                mappings,
                self.mappings,
                "mappings",
                "`sysctl vm.max_map_count`",
            ),
        ];
        let short = limits
            .into_iter()
            .filter(|(wanted, limit, ..)| wanted > limit);
        let short = short.map(|(wanted, limit, what, setting)| {
            format!("{wanted} {what}, where this process may have {limit} ({setting})")
        });
        let short: Vec<_> = short.collect();
        let text = short.join(", and ");
        (!short.is_empty()).then(|| format!("{text}: the last of them may be refused memory"))
    }
}

/// Returns what could become too low in this process for sessions that use all of their limits
/// `quotas`, and the way out; `None` if nothing could.
pub fn shortage_of(quotas: &[Quota]) -> Option<String> {
    HostLimits::read().shortage_of(quotas)
}

fn descriptors_of_session(command_buffers: u64) -> u64 {
    command_buffers
        .saturating_mul(DESCRIPTORS_PER_COMMAND_BUFFER)
        .saturating_add(DESCRIPTORS_PER_SESSION)
}

fn descriptors_of_others(sessions: u64, command_buffers: u64) -> u64 {
    descriptors_of_session(command_buffers)
        .saturating_mul(sessions)
        .saturating_add(DESCRIPTORS_FOR_OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: HostLimits = HostLimits {
        descriptors: 1 << 20,
        mappings: MAPPINGS_USUAL,
    };

    #[test]
    fn sessions_share_what_is_scarcer() {
        assert_eq!(USUAL.allocations(1, 64), 12_306);
        assert_eq!(USUAL.allocations(64, 64), 192);
        let few = HostLimits {
            descriptors: 4096,
            ..USUAL
        };
        // 64 for all, and 64 and two for each of 64 command buffers.
        assert_eq!(few.allocations(1, 64), 4096 - 64 - 192);
        assert_eq!(few.allocations(4, 64), (4096 - 64 - 4 * 192) / 4);
        assert_eq!(few.allocations(64, 64), 0);
        assert_eq!(few.allocations(0, 0), 4096 - 128);
    }

    #[test]
    fn what_exceeds_a_limit_is_named_with_its_numbers() {
        let quota = |allocations| Quota {
            allocations,
            command_buffers: 4,
            ..Quota::DEFAULT
        };
        let fits = USUAL.allocations(8, 4);
        assert_eq!(USUAL.shortage(8, &quota(fits)), None);
        let short = USUAL.shortage(8, &quota(fits + 1)).unwrap();
        assert_eq!(
            short,
            "8 sessions with 1539 allocations and 4 command buffers each may need 65560 mappings, \
             where this process may have 65530 (`sysctl vm.max_map_count`): the last of them may \
             be refused memory; raise the limit, or lower allocations= or queues= of --gpu"
        );
        let few = HostLimits {
            descriptors: 4096,
            ..USUAL
        };
        assert_eq!(few.shortage(8, &quota(few.allocations(8, 4))), None);
        let short = few.shortage(8, &quota(2000)).unwrap();
        let both = "need 16640 file descriptors, where this process may have 4096 (`ulimit -Hn`), \
                    and 84000 mappings, where";
        assert!(short.contains(both), "{short}");
        assert!(few.shortage(u32::MAX, &quota(u64::MAX)).is_some());
    }

    #[test]
    fn sessions_with_different_limits_are_added_up() {
        let quota = |allocations| Quota {
            allocations,
            command_buffers: 4,
            ..Quota::DEFAULT
        };
        let fits = USUAL.allocations(1, 4);
        assert_eq!(USUAL.shortage_of(&[quota(fits - 100), quota(100)]), None);
        let short = USUAL.shortage_of(&[quota(fits), quota(1)]).unwrap();
        let wanted = "2 sessions with 12307 allocations in all may need 65535 mappings, where";
        assert!(short.contains(wanted), "{short}");
        let few = HostLimits {
            descriptors: 64 + 2 * 72 + 10,
            ..USUAL
        };
        assert_eq!(few.shortage_of(&[quota(4), quota(6)]), None);
        assert!(few.shortage_of(&[quota(4), quota(7)]).is_some());
        assert!(few.shortage_of(&[quota(u64::MAX), quota(1)]).is_some());
    }

    #[test]
    fn the_limits_of_this_process_are_read() {
        let limits = HostLimits::read();
        assert!(limits.descriptors >= 16 && limits.mappings >= 1024);
    }
}
