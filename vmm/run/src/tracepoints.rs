//! `--tracepoints`: exits as KVM's tracepoints count them, beside KVM's statistics and the VMM's
//! own count.

use std::error::Error;
use std::fmt;

use causeway_vmm::outcome::VmOutcome;
use causeway_vmm::tracepoints::{TracepointCounts, TracepointError, Tracepoints};
use serde::Serialize;

/// KVM's name for all exits from a guest in its statistics.
const KVM_EXITS: &str = "exits";

/// What KVM's tracepoints counted for all VMs of a run, over their whole lives.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum TracepointReport {
    /// The tracepoints were counted.
    Counted(Witness),
    /// They could not be counted.
    Skipped {
        /// Why not, as text for people.
        skipped: String,
    },
}

/// Counts of exits by three witnesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Witness {
    /// Exits from guests, by the tracepoint `kvm:kvm_exit`. Zero on a KVM that never passes it.
    pub kvm_exit: u64,
    /// Exits from guests, by KVM's statistic `exits`.
    pub kvm_exits: u64,
    /// Returns from `KVM_RUN`, by the tracepoint `kvm:kvm_userspace_exit`.
    pub kvm_userspace_exit: u64,
    /// Returns from `KVM_RUN`, by the VMM's own count.
    pub vmm_exits: u64,
    /// Largest difference of two witnesses that is no disagreement: one for each VM, which may be
    /// stopped at an exit that not all of them count, and four for each further virtual CPU, which
    /// KVM also hands back, uncounted by the VMM, while it waits to be started.
    pub tolerance: u64,
}

/// Tracepoints that are being counted, or why they are not.
#[derive(Debug)]
pub struct Trace(Result<Tracepoints, TracepointError>);

impl Trace {
    /// Starts to count, if tracepoints can be counted on this host.
    pub fn start() -> Self {
        Self(Tracepoints::open())
    }

    /// Returns the counts beside those of the VMs, which have ended. Each had `vcpus` virtual CPUs.
    pub fn report(&self, outcomes: &[VmOutcome], vcpus: u32) -> TracepointReport {
        let skipped = |error: &TracepointError| TracepointReport::Skipped {
            skipped: chain(error),
        };
        let tracepoints = match &self.0 {
            Ok(tracepoints) => tracepoints,
            Err(error) => return skipped(error),
        };
        match tracepoints.counts() {
            Ok(counts) => TracepointReport::Counted(Witness::of(counts, outcomes, vcpus)),
            Err(error) => skipped(&error),
        }
    }
}

/// Returns the text of `error` and of its cause.
fn chain(error: &TracepointError) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

impl Witness {
    fn of(counts: TracepointCounts, outcomes: &[VmOutcome], vcpus: u32) -> Self {
        let kvm = outcomes.iter().filter_map(|vm| vm.kvm_exits.get(KVM_EXITS));
        Self {
            kvm_exit: counts.kvm_exit,
            kvm_exits: kvm.sum(),
            kvm_userspace_exit: counts.kvm_userspace_exit,
            vmm_exits: outcomes.iter().flat_map(|vm| vm.vmm_exits.values()).sum(),
            tolerance: outcomes.len() as u64 * (1 + 4 * u64::from(vcpus.saturating_sub(1))),
        }
    }

    /// Returns in words which witnesses disagree, or `None` if all agree.
    pub fn disagreement(&self) -> Option<String> {
        let differs = |a: u64, b: u64| a.abs_diff(b) > self.tolerance;
        let mut found = Vec::new();
        if differs(self.kvm_userspace_exit, self.vmm_exits) {
            found.push(format!(
                "the tracepoint kvm_userspace_exit counted {} returns to the VMM, the VMM {}",
                self.kvm_userspace_exit, self.vmm_exits
            ));
        }
        // A KVM by software has the tracepoint, but never passes it; others may have no statistics.
        if self.kvm_exit != 0 && self.kvm_exits != 0 && differs(self.kvm_exit, self.kvm_exits) {
            found.push(format!(
                "the tracepoint kvm_exit counted {} exits, KVM's statistics {}",
                self.kvm_exit, self.kvm_exits
            ));
        }
        (!found.is_empty()).then(|| found.join("; "))
    }
}

impl TracepointReport {
    /// Returns in words which witnesses disagree; `None` if all agree or nothing was counted.
    pub fn disagreement(&self) -> Option<String> {
        match self {
            Self::Counted(witness) => witness.disagreement(),
            Self::Skipped { .. } => None,
        }
    }
}

impl fmt::Display for TracepointReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let witness = match self {
            Self::Counted(witness) => witness,
            Self::Skipped { skipped } => return write!(f, "tracepoints: not counted: {skipped}"),
        };
        let Witness {
            kvm_exit,
            kvm_exits,
            kvm_userspace_exit,
            vmm_exits,
            ..
        } = witness;
        write!(
            f,
            "tracepoints: {kvm_userspace_exit} returns to the VMM (by its own count {vmm_exits})"
        )?;
        match kvm_exit {
            0 => write!(f, ", kvm_exit is not passed on this KVM")?,
            _ => write!(f, ", {kvm_exit} exits (by KVM's statistics {kvm_exits})")?,
        }
        match witness.disagreement() {
            Some(_) => f.write_str(" -> the witnesses DISAGREE"),
            None => f.write_str(" -> the witnesses agree"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGREEING: Witness = Witness {
        kvm_exit: 5000,
        kvm_exits: 5000,
        kvm_userspace_exit: 227,
        vmm_exits: 227,
        tolerance: 2,
    };

    #[test]
    fn witnesses_disagree_by_more_than_is_tolerated() {
        assert_eq!(AGREEING.disagreement(), None);
        let other = |vmm_exits, kvm_exits| {
            let witness = Witness {
                vmm_exits,
                kvm_exits,
                ..AGREEING
            };
            witness.disagreement()
        };
        assert_eq!(other(225, 5002), None);
        let found = other(224, 5000).unwrap();
        assert!(
            found.contains("227 returns to the VMM, the VMM 224"),
            "{found}"
        );
        let found = other(227, 5003).unwrap();
        assert!(
            found.contains("5000 exits, KVM's statistics 5003"),
            "{found}"
        );
    }

    #[test]
    fn a_kvm_that_never_passes_a_tracepoint_is_no_disagreement() {
        let software = Witness {
            kvm_exit: 0,
            ..AGREEING
        };
        assert_eq!(software.disagreement(), None);
        let text = TracepointReport::Counted(software).to_string();
        assert!(
            text.contains("kvm_exit is not passed") && text.contains("agree"),
            "{text}"
        );
        let without_statistics = Witness {
            kvm_exits: 0,
            ..AGREEING
        };
        assert_eq!(without_statistics.disagreement(), None);
    }
}
