//! Counts of GPU kernels, as worker processes tell them to the VMM.

use std::collections::BTreeMap;

use causeway_software::LaunchCount;
use causeway_vmm::outcome::VmOutcome;

use crate::report::{KernelCount, KernelReport};

/// Maximum number of kernels whose counts a worker process sends to its VMM.
const KERNELS_TOLD_MAX: usize = 256;
/// Longest kernel name that a worker process sends, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Encodes the counts of the kernels that took longest, for the VMM's report.
pub(crate) fn supplement(mut counts: Vec<LaunchCount>) -> Vec<u8> {
    counts.sort_by_key(|count| std::cmp::Reverse(count.busy_ns));
    counts.retain(|count| count.kernel.len() <= NAME_BYTES_MAX);
    counts.truncate(KERNELS_TOLD_MAX);
    let counts: Vec<_> = counts.into_iter().map(KernelCount::from).collect();
    serde_json::to_vec(&counts).unwrap_or_default()
}

/// Returns what the worker processes of all VMs have sent. Workers are not trusted: counts that
/// cannot be decoded are left out.
pub(crate) fn told(outcomes: &[VmOutcome]) -> impl Iterator<Item = KernelCount> {
    let sessions = outcomes.iter().flat_map(|outcome| &outcome.sessions);
    let workers = sessions.filter_map(|session| session.worker.as_ref());
    workers
        .flat_map(|worker| &worker.supplements)
        .flat_map(|supplement| {
            let counts = serde_json::from_slice::<Vec<KernelCount>>(supplement);
            counts
                .unwrap_or_default()
                .into_iter()
                .take(KERNELS_TOLD_MAX)
        })
        .map(|mut count| {
            count.name.retain(|c| !c.is_control());
            let kept = count.name.floor_char_boundary(NAME_BYTES_MAX);
            count.name.truncate(kept);
            count
        })
}

/// Sums up counts by kernel, sorted by the names of the kernels.
pub(crate) fn summed(counts: impl Iterator<Item = KernelCount>) -> Vec<KernelReport> {
    let mut sums: BTreeMap<String, KernelCount> = BTreeMap::new();
    for count in counts {
        let sum = sums.entry(count.name.clone()).or_default();
        for (sum, more) in [
            (&mut sum.launches, count.launches),
            (&mut sum.thread_instructions, count.thread_instructions),
            (&mut sum.busy_ns, count.busy_ns),
        ] {
            *sum = sum.saturating_add(more);
        }
        sum.name = count.name;
    }
    sums.into_values().map(Into::into).collect()
}
