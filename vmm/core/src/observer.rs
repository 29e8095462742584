//! Statistics of a running VM.
//!
//! An observer reads counters and nothing else: KVM's statistics from their files, which KVM fills
//! from memory without stopping a virtual CPU; the VMM's own, of which each virtual CPU's are
//! copied out under their lock; the session's and the aperture's, without any that their work
//! takes. No virtual CPU is kicked, and no exit caused. An observer keeps nothing of the VM alive.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_mediator::{Activity, GuestSession, Rights};

use crate::aperture::ApertureUse;
use crate::counters::{self, ExitCounters};
use crate::statistics::{StatisticsError, VmStatistics};
use crate::vcpu::Machine;

/// Gives any thread the statistics of a running VM on one of its GPUs. [`crate::vm::Vm::observers`]
/// makes it.
#[derive(Clone)]
pub struct VmObserver {
    pub(crate) name: String,
    /// Index of the GPU among those of the VM.
    pub(crate) gpu: usize,
    /// Number of the GPU in its run.
    pub(crate) number: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) session: Weak<dyn GuestSession>,
    pub(crate) machine: Weak<Machine>,
    pub(crate) statistics: Weak<VmStatistics>,
    pub(crate) counters: Vec<Arc<ExitCounters>>,
}

debug_by_name!(VmObserver);

/// The statistics of a VM at one moment. All counters have counted since the VM was created.
#[derive(Clone, Debug, PartialEq)]
pub struct VmObservation {
    /// Name of the VM, or of one of its further GPUs.
    pub name: String,
    /// Index of the GPU among those of the VM. The VM itself is observed with GPU 0: for others
    /// there are no virtual CPUs, no RAM and no exits.
    pub gpu: usize,
    /// Number of the GPU in its run, from 0.
    pub gpu_number: u32,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Size of the guest's RAM in bytes.
    pub memory_bytes: u64,
    /// Time from the guest's first instruction to now, or to the end of the VM if it has ended;
    /// `None` if the guest has not executed an instruction yet.
    pub ran_for: Option<Duration>,
    /// Whether the VM has ended.
    pub ended: bool,
    /// Whether the VM is paused, or about to be.
    pub paused: bool,
    /// Values of KVM's counters, by KVM's names for them; `None` if the host's kernel does not
    /// offer them or they cannot be read.
    pub kvm: Option<BTreeMap<String, u64>>,
    /// Number of exits that the VMM has counted for each cause, such as
    /// `mmio:registers:control_doorbell`.
    pub vmm_exits: BTreeMap<String, u64>,
    /// How much of the VM's aperture (BAR 2) is in use.
    pub aperture: ApertureUse,
    /// Statistics of the VM's session; `None` if a worker process has the session and does not
    /// answer.
    pub session: Option<Activity>,
    /// Rights to memory that the VM has given to others by exports, and has by imports.
    pub rights: Rights,
}

impl VmObserver {
    /// Returns the VM's statistics at this moment; `None` if the VM does not exist any more. Takes
    /// about ten microseconds, or up to a fraction of a second if a worker process does not answer.
    pub fn observe(&self) -> Option<VmObservation> {
        // First, since it may be waited for: counts and times are to be of one moment.
        let session = self.session.upgrade()?;
        let (activity, rights) = (session.activity(), session.rights());
        drop(session);
        let machine = self.machine.upgrade()?;
        let (vmm_exits, kvm) = (self.vmm_exits(), self.kvm());
        let ended = machine.life.decided();
        let until = ended.unwrap_or_else(Instant::now);
        let first = machine.life.first_entry();
        Some(VmObservation {
            name: self.name.clone(),
            gpu: self.gpu,
            gpu_number: self.number,
            vcpus: self.counters.len() as u32,
            memory_bytes: self.memory_bytes,
            ran_for: first.map(|first| until.saturating_duration_since(first)),
            ended: ended.is_some(),
            paused: machine.life.pause().is_wanted(),
            kvm,
            vmm_exits,
            aperture: machine.apertures.0[self.gpu].usage(),
            session: activity,
            rights,
        })
    }

    /// Returns name and session of the VM; `None` if the VM has ended or does not exist any more.
    pub fn running(&self) -> Option<(String, Arc<dyn GuestSession>)> {
        let session = self.session.upgrade()?;
        let has_ended = self.machine.upgrade()?.life.decided().is_some();
        (!has_ended).then(|| (self.name.clone(), session))
    }

    fn vmm_exits(&self) -> BTreeMap<String, u64> {
        let total = counters::total(self.counters.iter().map(|c| &**c));
        counters::named(&total)
    }

    fn kvm(&self) -> Option<BTreeMap<String, u64>> {
        let statistics = self.statistics.upgrade().filter(|s| s.is_available())?;
        let read = || -> Result<_, StatisticsError> {
            let sample = statistics.sample()?;
            Ok(statistics.difference(&statistics.zero(), &sample))
        };
        read()
            .inspect_err(|e| log::debug!("{}: {}", self.name, crate::error_chain::chain(e)))
            .ok()
    }
}
