//! What a run has done, as its report says it.

use std::time::Instant;

use causeway_mediator::backend::Attributes;
use causeway_terminal::Origin;
use causeway_testdev as testdev;
use causeway_vmm::host::Host;
use causeway_vmm::numa::Node;
use causeway_vmm::outcome::VmOutcome;

use crate::configuration::Run;
use crate::data_path::DataPath;
use crate::gpu::{Gpu, Isolation};
use crate::report::{
    BackendReport, GpuReport, PauseReport, PhaseReport, RatioReport, Report, SCHEMA, SessionCounts,
    VmReport,
};

/// Returns the report of a run without its VMs, whose outcome is not known yet. `gpus` are what the
/// VMs see of the run's GPUs.
pub fn report(
    run: &Run,
    gpus: Vec<Option<Attributes>>,
    vmm_rss_bytes: u64,
    (origin, host): (Origin, Host),
) -> Report {
    let mut seen = gpus.into_iter().zip(run.gpus()).map(back_end);
    Report {
        schema: SCHEMA,
        causeway: env!("CARGO_PKG_VERSION"),
        origin,
        host,
        backend: seen.next().unwrap_or_else(|| BackendReport {
            name: String::new(),
            memory_bytes_per_vm: run.gpu.memory_bytes,
            compute_units: 0,
        }),
        further_backends: seen.collect(),
        guest: run.settings.guest.clone(),
        outcome: "fail",
        reason: String::new(),
        data_path_exits: 0,
        data_path: DataPath::Unmarked,
        boot_us: None,
        vmm_rss_bytes,
        vmm_rss_bytes_per_vm: vmm_rss_bytes / u64::from(run.settings.vms),
        vms: Vec::new(),
        phases: Vec::new(),
        ratios: Vec::new(),
        tracepoints: None,
        kernels: Vec::new(),
    }
}

/// Returns the report on a GPU: what VMs see of it, if there are any.
fn back_end((seen, (limits, text)): (Option<Attributes>, (&Gpu, &str))) -> BackendReport {
    match seen {
        Some(gpu) => BackendReport {
            name: gpu.name,
            memory_bytes_per_vm: limits.memory_bytes.min(gpu.memory_bytes),
            compute_units: gpu.compute_units,
        },
        None => BackendReport {
            name: format!("{text}, without a VM"),
            memory_bytes_per_vm: limits.memory_bytes,
            compute_units: 0,
        },
    }
}

/// Returns the time from `started` to the first instruction of a guest, in microseconds.
pub fn boot_us(outcomes: &[VmOutcome], started: Instant) -> Option<u64> {
    let first = outcomes.iter().filter_map(|o| o.first_instruction).min()?;
    u64::try_from(first.duration_since(started).as_micros()).ok()
}

impl Report {
    /// Adds a VM that has ended, with what its guest has reported.
    pub fn add(&mut self, vm: u32, run: &Run, outcome: &VmOutcome, reported: &testdev::Report) {
        let mut sessions = outcome.sessions.iter();
        let first = sessions.next();
        let worker = first.and_then(|session| session.worker.as_ref());
        self.vms.push(VmReport {
            vm,
            gpu: run.gpus_of(vm).next().map_or(0, |(number, ..)| number),
            numa_node: run.node_of(vm).map(Node::number),
            vcpus: run.settings.vcpus,
            memory_bytes: outcome.memory_bytes,
            result: run.promise.describe(&outcome.result),
            at_timeout: outcome.at_timeout.clone(),
            passed: run.promise.code(&outcome.result).is_none(),
            program_status: run.promise.program_status(&outcome.result),
            strays: outcome.strays,
            kvm_exits: outcome.kvm_exits.clone(),
            vmm_exits: outcome.vmm_exits.clone(),
            program: reported.program.clone(),
            data_path_exits: 0,
            data_path: DataPath::Unmarked,
            phases_refused: reported.phases_refused,
            pauses: PauseReport::of(outcome.pauses),
            session: first.map(SessionCounts::from).unwrap_or_default(),
            isolation: worker
                .map_or(Isolation::None, |_| Isolation::Process)
                .name(),
            worker_rss_bytes: worker.map(|worker| worker.rss_bytes),
            worker_restarts: worker.map(|worker| worker.restarts),
            devices: outcome.devices.clone(),
            further_gpus: (1..)
                .zip(sessions)
                .map(|(gpu, it)| GpuReport::of(gpu, it))
                .collect(),
        });
        let phases = reported.phases.iter().cloned();
        self.phases
            .extend(phases.map(|phase| PhaseReport { vm, phase }));
        let figures = reported.figures.iter().cloned();
        self.ratios
            .extend(figures.map(|figure| RatioReport { vm, figure }));
    }
}
