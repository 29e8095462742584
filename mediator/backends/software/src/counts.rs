//! What the launches of each kernel have done.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::exec::LaunchOutcome;

/// Kernels that counts are kept for, at most.
const COUNTS_MAX: usize = 1024;

/// What all launches of one kernel have done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchCount {
    /// Name of the kernel.
    pub kernel: String,
    /// Launches that ended without a fault.
    pub launches: u64,
    /// Instructions that all threads of these launches executed. An instruction that 32 threads
    /// execute counts 32 times.
    pub thread_instructions: u64,
    /// CPU time of these launches on all cores together, in nanoseconds.
    pub busy_ns: u64,
}

/// What the launches of all kernels of a back end have done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    kernels: Mutex<HashMap<String, LaunchCount>>,
}

impl Counts {
    /// Adds what a launch of `kernel` has done.
    pub(crate) fn add(&self, kernel: &str, outcome: &LaunchOutcome) {
        let mut kernels = self.kernels.lock();
        if !kernels.contains_key(kernel) {
            if kernels.len() == COUNTS_MAX {
                return;
            }
            let count = LaunchCount {
                kernel: kernel.to_owned(),
                ..LaunchCount::default()
            };
            kernels.insert(kernel.to_owned(), count);
        }
        if let Some(count) = kernels.get_mut(kernel) {
            count.launches += 1;
            count.thread_instructions += outcome.thread_instructions;
            count.busy_ns += outcome.usage.busy_ns;
        }
    }

    /// Returns the counts of all kernels, sorted by name.
    pub(crate) fn all(&self) -> Vec<LaunchCount> {
        let kernels = self.kernels.lock();
        let mut all: Vec<LaunchCount> = kernels.values().cloned().collect();
        all.sort_by(|a, b| a.kernel.cmp(&b.kernel));
        all
    }
}
