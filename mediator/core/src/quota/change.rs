//! Which changes of its limits a session can have.

use std::ops::RangeInclusive;

use super::LimitChange;
use crate::arbiter::Compute;

/// Why the limits of a session cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A weight, a cap or a limit on the time of work, for a session whose work nobody can hold
    /// back or end.
    #[error(
        "weight, share and timeout of a GPU need a worker process for each guest: leave them out, \
         or start without isolation=none"
    )]
    NoWorker,
    /// A weight or a cap that is out of range.
    #[error(
        "invalid value {value} for {what}: {least} to {most}",
        least = .range.start(),
        most = .range.end()
    )]
    Range {
        /// Name of the limit.
        what: &'static str,
        /// The value that is refused.
        value: u32,
        /// The values that are valid.
        range: RangeInclusive<u32>,
    },
    /// More memory than the back end has.
    #[error(
        "invalid value {wanted_mib} MiB for memory: the back end has {has_mib} MiB; choose at \
         most that, or start with a larger memory= in --gpu"
    )]
    Memory {
        /// The value that is refused, in MiB.
        wanted_mib: u64,
        /// Memory of the back end, in MiB.
        has_mib: u64,
    },
}

impl LimitChange {
    /// Checks the change for a session on a back end with `memory_bytes` bytes of memory.
    /// `controls_work` tells whether work can be held back and ended.
    ///
    /// # Errors
    /// [`LimitError`] says why a session there cannot have these limits.
    pub fn check(&self, memory_bytes: u64, controls_work: bool) -> Result<(), LimitError> {
        let needs_control =
            self.weight.is_some() || self.share_percent.is_some() || self.work_ms.is_some();
        if needs_control && !controls_work {
            return Err(LimitError::NoWorker);
        }
        check_range("weight", self.weight, Compute::WEIGHTS)?;
        check_range("share", self.share_percent, Compute::SHARES_PERCENT)?;
        match self.memory_bytes.filter(|wanted| *wanted > memory_bytes) {
            None => Ok(()),
            Some(wanted) => Err(LimitError::Memory {
                wanted_mib: wanted >> 20,
                has_mib: memory_bytes >> 20,
            }),
        }
    }

    /// Returns `compute` with the new weight and cap.
    pub fn compute(&self, compute: Compute) -> Compute {
        Compute {
            weight: self.weight.unwrap_or(compute.weight),
            share_percent: self.share_percent.unwrap_or(compute.share_percent),
        }
    }
}

fn check_range(
    what: &'static str,
    wanted: Option<Option<u32>>,
    range: RangeInclusive<u32>,
) -> Result<(), LimitError> {
    match wanted.flatten().filter(|value| !range.contains(value)) {
        None => Ok(()),
        Some(value) => Err(LimitError::Range { what, value, range }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_refused_for_what_the_back_end_has_and_does() {
        let weight = |weight| LimitChange {
            weight: Some(weight),
            ..LimitChange::default()
        };
        let share = |share_percent| LimitChange {
            share_percent: Some(share_percent),
            ..LimitChange::default()
        };
        let memory = |memory_bytes| LimitChange {
            memory_bytes: Some(memory_bytes),
            ..LimitChange::default()
        };
        let timeout = LimitChange {
            work_ms: Some(1000),
            ..LimitChange::default()
        };
        for change in [
            weight(Some(1)),
            weight(None),
            share(Some(100)),
            share(None),
            timeout,
        ] {
            assert_eq!(change.check(0, true), Ok(()));
            assert_eq!(change.check(0, false), Err(LimitError::NoWorker));
        }
        for change in [
            weight(Some(0)),
            weight(Some(10_001)),
            share(Some(0)),
            share(Some(101)),
        ] {
            let refused = change.check(0, true);
            assert!(
                matches!(refused, Err(LimitError::Range { .. })),
                "{change:?}"
            );
        }
        assert_eq!(memory(2 << 20).check(2 << 20, false), Ok(()));
        let refused = memory(3 << 20).check(2 << 20, false).unwrap_err();
        let text = "invalid value 3 MiB for memory: the back end has 2 MiB";
        assert!(refused.to_string().starts_with(text), "{refused}");
    }
}
