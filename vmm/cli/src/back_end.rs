//! The back end that `--gpu` names, in this process or in a worker process for each VM.

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_mediator::backend::Backend;
use causeway_mediator::{Mediator, SessionSource};
use causeway_software::{Config as SoftwareConfig, LaunchCount, Software};
use causeway_vmm::outcome::VmOutcome;
use causeway_worker::{Equipment, Program, Workers};

use crate::configuration::Run;
use crate::failure::{Code, Failure};
use crate::gpu::{Gpu, Place};
use crate::report::{KernelCount, KernelReport};

/// Most kernels of which a worker tells its counts.
const KERNELS_TOLD_MAX: usize = 256;
/// Longest name of a kernel that it tells, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Where the VMs of a run get their sessions from.
pub enum BackEnd {
    /// One back end for all VMs, in this process.
    Inside(Arc<Software>, Arc<Mediator>),
    /// One for each VM, in a process of its own.
    Processes(Workers),
}

impl BackEnd {
    /// What the arguments ask for. Workers start with their sessions.
    pub fn new(run: &Run) -> Result<Self, Failure> {
        match run.gpu.place {
            Place::Inside => {
                let software = software(&run.gpu, run.vms);
                let mediator = Mediator::new(Arc::clone(&software) as Arc<dyn Backend>);
                Ok(Self::Inside(software, mediator))
            }
            Place::Process => {
                let program = Program {
                    path: "/proc/self/exe".into(),
                    arguments: ["worker", "--gpu", &run.gpu_text].map(Into::into).to_vec(),
                };
                let workers = Workers::new(program, None)
                    .map_err(|e| Failure::new(Code::Crashed, "cannot start a thread", e))?;
                Ok(Self::Processes(workers))
            }
        }
    }

    /// Opens sessions.
    pub fn sessions(&self) -> &dyn SessionSource {
        match self {
            Self::Inside(_, mediator) => &**mediator,
            Self::Processes(workers) => workers,
        }
    }

    /// What kernels did, for all VMs.
    pub fn kernels(&self, outcomes: &[VmOutcome]) -> Vec<KernelReport> {
        match self {
            Self::Inside(software, _) => {
                let counts = software.launch_counts().into_iter();
                counts
                    .map(|count| KernelCount::from(count).into())
                    .collect()
            }
            Self::Processes(_) => told(outcomes),
        }
    }
}

/// What a worker process works with.
pub fn equipment(gpu: &Gpu) -> Equipment {
    let software = software(gpu, 1);
    Equipment {
        backend: Arc::clone(&software) as Arc<dyn Backend>,
        device: None,
        supplement: Box::new(move || supplement(software.launch_counts())),
    }
}

fn software(gpu: &Gpu, vms: u32) -> Arc<Software> {
    Arc::new(Software::new(SoftwareConfig {
        memory_bytes: gpu.memory_bytes.saturating_mul(vms.into()),
        cores: gpu.cores,
    }))
}

/// The kernels that took longest, for the VMM's report.
fn supplement(mut counts: Vec<LaunchCount>) -> Vec<u8> {
    counts.sort_by_key(|count| std::cmp::Reverse(count.busy_ns));
    counts.retain(|count| count.kernel.len() <= NAME_BYTES_MAX);
    counts.truncate(KERNELS_TOLD_MAX);
    let counts: Vec<_> = counts.into_iter().map(KernelCount::from).collect();
    serde_json::to_vec(&counts).unwrap_or_default()
}

/// What the workers of all VMs have told, summed up by kernel. They are not trusted: what makes no sense is left out.
fn told(outcomes: &[VmOutcome]) -> Vec<KernelReport> {
    let workers = outcomes.iter().filter_map(|o| o.session.worker.as_ref());
    let mut sums: BTreeMap<String, KernelCount> = BTreeMap::new();
    for supplement in workers.flat_map(|worker| &worker.supplements) {
        let counts = serde_json::from_slice::<Vec<KernelCount>>(supplement).unwrap_or_default();
        for mut count in counts.into_iter().take(KERNELS_TOLD_MAX) {
            count.name.retain(|c| !c.is_control());
            count
                .name
                .truncate(count.name.floor_char_boundary(NAME_BYTES_MAX));
            let sum = sums.entry(count.name.clone()).or_insert(KernelCount {
                name: count.name,
                ..KernelCount::default()
            });
            sum.launches = sum.launches.saturating_add(count.launches);
            sum.thread_instructions = sum
                .thread_instructions
                .saturating_add(count.thread_instructions);
            sum.busy_ns = sum.busy_ns.saturating_add(count.busy_ns);
        }
    }
    sums.into_values().map(Into::into).collect()
}
