//! The VMM's own counts of exits, by reason, device and register.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

/// The cause of an exit. `Display` writes it as the text that reports use, such as
/// `mmio:registers:control_doorbell` or `signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExitKey {
    /// Why KVM returned to the VMM: `io`, `mmio`, `signal`, …
    pub reason: &'static str,
    /// Name of the device that handled the exit; empty if none did.
    pub device: &'static str,
    /// Name of the device's register; empty if no device handled the exit.
    pub register: &'static str,
}

impl ExitKey {
    /// Returns the cause of an exit that no device handles. `reason` says why KVM returned to the
    /// VMM.
    pub const fn plain(reason: &'static str) -> Self {
        Self::device(reason, "", "")
    }

    /// Returns the cause of an exit that was an access to `register` of `device`. `reason` says why
    /// KVM returned to the VMM, such as `mmio`.
    pub const fn device(
        reason: &'static str,
        device: &'static str,
        register: &'static str,
    ) -> Self {
        Self {
            reason,
            device,
            register,
        }
    }
}

impl fmt::Display for ExitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)?;
        for part in [self.device, self.register] {
            if !part.is_empty() {
                write!(f, ":{part}")?;
            }
        }
        Ok(())
    }
}

/// The cause of exits that a kick by the VMM brings about.
pub const KICKED: ExitKey = ExitKey::plain("signal");

/// The cause of exits that a kick brings about because the VM is to pause.
pub const PAUSED: ExitKey = ExitKey::device(KICKED.reason, "pause", "");

/// Number of exits for each cause.
pub type ExitCounts = BTreeMap<ExitKey, u64>;

/// More keys than almost any virtual CPU has.
const KEYS_EXPECTED: usize = 64;

/// Counters of the exits of one virtual CPU, one for each cause. Other threads may read them at any
/// time.
#[derive(Debug, Default)]
pub struct ExitCounters {
    // A few dozen keys at most (names are static, and a guest cannot make new ones), of which a
    // workload uses a handful: a linear search is quicker than hashing, and both are nothing beside
    // an exit.
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    counts: Vec<(ExitKey, u64)>,
    last: Option<ExitKey>,
}

impl ExitCounters {
    /// Counts one exit with the cause `key`.
    pub fn count(&self, key: ExitKey) {
        let Counted { counts, last } = &mut *self.counted.lock();
        if key.reason != KICKED.reason {
            *last = Some(key);
        }
        match counts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, count)) => *count += 1,
            None => counts.push((key, 1)),
        }
    }

    /// Returns the cause of the exit that was counted last; `None` if none was. Exits that the VMM
    /// caused by kicks are left out.
    pub fn last(&self) -> Option<ExitKey> {
        self.counted.lock().last
    }

    /// Returns the number of exits, and the cause of the last one. Those that the VMM caused by
    /// kicks are left out.
    pub fn of_guest(&self) -> (u64, Option<ExitKey>) {
        let Counted { counts, last } = &*self.counted.lock();
        let own = counts.iter().filter(|(key, _)| key.reason != KICKED.reason);
        (own.map(|(_, count)| count).sum(), *last)
    }

    /// Adds the current counts of this virtual CPU to `into`.
    pub fn add_to(&self, into: &mut ExitCounts) {
        // Copied out, into room that is there: a virtual CPU that exits meanwhile waits no longer
        // than that takes.
        let mut copy = Vec::with_capacity(KEYS_EXPECTED);
        copy.extend_from_slice(&self.counted.lock().counts);
        for (key, count) in copy {
            *into.entry(key).or_default() += count;
        }
    }
}

/// Adds up the counts of several virtual CPUs, and returns the sum for each cause of exits.
pub fn total<'a>(counters: impl IntoIterator<Item = &'a ExitCounters>) -> ExitCounts {
    let mut counts = ExitCounts::new();
    for vcpu in counters {
        vcpu.add_to(&mut counts);
    }
    counts
}

/// Returns `counts` with each cause of exits as text, as reports list it. Counts of zero are left
/// out.
pub fn named(counts: &ExitCounts) -> BTreeMap<String, u64> {
    counts
        .iter()
        .filter(|(_, count)| **count != 0)
        .map(|(key, count)| (key.to_string(), *count))
        .collect()
}

/// Returns the number of exits for each cause between two samples: `later` minus `earlier`. Counts
/// of zero are left out.
pub fn since(earlier: &ExitCounts, later: &ExitCounts) -> ExitCounts {
    later
        .iter()
        .map(|(key, count)| (*key, count - earlier.get(key).unwrap_or(&0)))
        .filter(|(_, count)| *count != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOORBELL: ExitKey = ExitKey::device("mmio", "registers", "control_doorbell");

    #[test]
    fn keys_read_like_paths() {
        assert_eq!(DOORBELL.to_string(), "mmio:registers:control_doorbell");
        assert_eq!(ExitKey::plain("signal").to_string(), "signal");
        assert_eq!(PAUSED.to_string(), "signal:pause");
    }

    #[test]
    fn differences_leave_out_what_did_not_happen() {
        let counters = ExitCounters::default();
        counters.count(ExitKey::plain("halt"));
        counters.count(DOORBELL);
        let earlier = total([&counters]);
        counters.count(DOORBELL);
        counters.count(DOORBELL);
        counters.count(KICKED);
        counters.count(PAUSED);
        assert_eq!(counters.last(), Some(DOORBELL));
        assert_eq!(counters.of_guest(), (4, Some(DOORBELL)));
        let later = total([&counters, &ExitCounters::default()]);
        let between = since(&earlier, &later);
        assert_eq!(
            between,
            ExitCounts::from([(DOORBELL, 2), (KICKED, 1), (PAUSED, 1)])
        );
        assert_eq!(named(&later)["mmio:registers:control_doorbell"], 3);
    }
}
