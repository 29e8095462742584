//! Both counts of a VM's exits, KVM's and the VMM's own, sampled at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::counters::{self, ExitCounters, ExitCounts};
use crate::device::Doorbells;
use crate::statistics::{Sample, VmStatistics};

/// Most samples taken for one moment, while other virtual CPUs keep exiting.
const SAMPLE_TRIES: u32 = 16;

/// The counters of one VM's exits: KVM's and the VMM's own. Reading them causes no exit and stops
/// no virtual CPU. Tests use the default value, which has no counters.
#[derive(Clone, Debug, Default)]
pub struct VmExits {
    statistics: Arc<VmStatistics>,
    counters: Vec<Arc<ExitCounters>>,
    /// Those of each of the VM's GPUs.
    doorbells: Vec<Arc<Doorbells>>,
}

/// How many exits KVM and the VMM have counted since the VM began. [`VmExits::sample`] takes a
/// sample.
#[derive(Clone, Debug, Default)]
pub struct ExitSample {
    kvm: Sample,
    /// The exits that the VMM has counted.
    pub vmm: ExitCounts,
    /// Number of stores to doorbells that KVM has taken by itself; `None` if the host does not tell
    /// it ([`Doorbells::taken_by_kvm`]).
    pub doorbells: Option<u64>,
}

impl VmExits {
    /// Returns the counters of a VM: KVM's `statistics` of the VM, and the VMM's `counters`, which
    /// has one element for each virtual CPU.
    pub fn new(statistics: Arc<VmStatistics>, counters: Vec<Arc<ExitCounters>>) -> Self {
        Self {
            statistics,
            counters,
            doorbells: Vec::new(),
        }
    }

    /// Returns these counters with those of the VM's `doorbells`, of one GPU after the other.
    pub fn with_doorbells<'a>(
        self,
        doorbells: impl IntoIterator<Item = &'a Arc<Doorbells>>,
    ) -> Self {
        let doorbells = doorbells.into_iter().map(Arc::clone).collect();
        Self { doorbells, ..self }
    }

    /// Returns the VMM's counters of each virtual CPU.
    pub(crate) fn counters(&self) -> &[Arc<ExitCounters>] {
        &self.counters
    }

    /// Returns KVM's statistics of the VM.
    pub(crate) fn statistics(&self) -> &Arc<VmStatistics> {
        &self.statistics
    }

    /// Reads KVM's counters and the VMM's own counters, as nearly at the same moment as possible.
    /// KVM's are left out, with an error in the log, if they cannot be read.
    ///
    /// If the VMM counts an exit or KVM takes a doorbell during the reads, reads all counters
    /// again, up to 16 times in all. The two counts may still differ by one exit for each virtual
    /// CPU: KVM counts an exit before the VMM does.
    pub fn sample(&self) -> ExitSample {
        let count = || {
            let vmm = counters::total(self.counters.iter().map(|c| &**c));
            (vmm, self.doorbells_taken())
        };
        let mut before = count();
        let mut tries = 0;
        loop {
            let kvm = self.statistics.sample().unwrap_or_else(|e| {
                log::error!(
                    "cannot read KVM's statistics, so this sample of exit counts lacks them: {e}"
                );
                Sample::default()
            });
            let after = count();
            tries += 1;
            if after == before || tries == SAMPLE_TRIES {
                let (vmm, doorbells) = before;
                return ExitSample {
                    kvm,
                    vmm,
                    doorbells,
                };
            }
            before = after;
        }
    }

    /// Returns how many stores to doorbells KVM has taken; `None` if that is not known of one GPU.
    fn doorbells_taken(&self) -> Option<u64> {
        if self.doorbells.is_empty() {
            return None;
        }
        self.doorbells.iter().map(|it| it.taken_by_kvm()).sum()
    }

    /// Returns how far each of KVM's counters grew from sample `earlier` to sample `later`, by
    /// KVM's name for the counter. The map is empty if KVM keeps no statistics.
    pub fn kvm_between(&self, earlier: &ExitSample, later: &ExitSample) -> BTreeMap<String, u64> {
        self.statistics.difference(&earlier.kvm, &later.kvm)
    }
}
