//! Pauses and resumes a running VM, from any thread.

use std::sync::Weak;
use std::time::{Duration, Instant};

use crate::pause::{Pauses, RunState};
use crate::vcpu::Machine;
use crate::vcpu_threads::VcpuThreads;

/// Lets any thread pause and resume a VM. [`crate::vm::Vm::pause_switch`] makes it. It keeps
/// nothing of the VM alive.
#[derive(Clone)]
pub struct PauseSwitch {
    pub(crate) name: String,
    pub(crate) vcpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) machine: Weak<Machine>,
    pub(crate) threads: Weak<VcpuThreads>,
}

debug_by_name!(PauseSwitch);

/// Whether a VM runs, and its pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether the VM runs.
    pub state: RunState,
    /// Time from the guest's first instruction to now, pauses included, or to the end of the VM;
    /// zero if the guest has not executed an instruction yet.
    pub ran_for: Duration,
    /// Its pauses until now.
    pub pauses: Pauses,
}

impl PauseSwitch {
    /// Returns the name of the VM.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of its virtual CPUs.
    pub fn vcpus(&self) -> u32 {
        self.vcpus
    }

    /// Returns the size of its RAM in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Asks the virtual CPUs to stand still, and returns without waiting for them. Does nothing if
    /// they have been asked, or if the VM has ended. Threads of devices and GPU work go on.
    pub fn pause(&self) {
        let (Some(machine), Some(threads)) = (self.machine.upgrade(), self.threads.upgrade())
        else {
            return;
        };
        machine.life.pause().begin();
        threads.kick();
    }

    /// Lets the virtual CPUs go on.
    pub fn resume(&self) {
        if let Some(machine) = self.machine.upgrade() {
            machine.life.pause().end();
        }
    }

    /// Returns whether the VM runs; `None` if it does not exist any more.
    pub fn look(&self) -> Option<Standing> {
        let machine = self.machine.upgrade()?;
        let life = &machine.life;
        let until = life.decided().unwrap_or_else(Instant::now);
        let first = life.first_entry();
        let ran_for = first.map(|first| until.saturating_duration_since(first));
        Some(Standing {
            state: life.state(),
            ran_for: ran_for.unwrap_or_default(),
            pauses: life.pause().until_now(),
        })
    }
}
