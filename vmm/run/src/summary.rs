//! What a run has done, as its report says it.

use std::time::Instant;

use causeway_mediator::backend::Attributes;
use causeway_terminal::Origin;
use causeway_testdev as testdev;
use causeway_vmm::host::Host;
use causeway_vmm::outcome::VmOutcome;

use crate::configuration::Run;
use crate::data_path::DataPath;
use crate::gpu::Isolation;
use crate::report::{BackendReport, PhaseReport, RatioReport, Report, SCHEMA, VmReport};

/// Returns the report of a run without its VMs, whose outcome is not known yet. `gpu` is what the
/// back end says about the GPU, if a VM was created.
pub fn report(
    run: &Run,
    gpu: Option<Attributes>,
    vmm_rss_bytes: u64,
    (origin, host): (Origin, Host),
) -> Report {
    let (name, memory_bytes, compute_units) = match gpu {
        Some(gpu) => (gpu.name, gpu.memory_bytes, gpu.compute_units),
        None => (String::new(), u64::MAX, 0),
    };
    Report {
        schema: SCHEMA,
        causeway: env!("CARGO_PKG_VERSION"),
        origin,
        host,
        backend: BackendReport {
            name,
            memory_bytes_per_vm: run.gpu.memory_bytes.min(memory_bytes),
            compute_units,
        },
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

/// Returns the time from `started` to the first instruction of a guest, in microseconds.
pub fn boot_us(outcomes: &[VmOutcome], started: Instant) -> Option<u64> {
    let first = outcomes.iter().filter_map(|o| o.first_instruction).min()?;
    u64::try_from(first.duration_since(started).as_micros()).ok()
}

impl Report {
    /// Adds a VM that has ended, with what its guest has reported.
    pub fn add(&mut self, vm: u32, run: &Run, outcome: &VmOutcome, reported: &testdev::Report) {
        let worker = outcome.session.worker.as_ref();
        self.vms.push(VmReport {
            vm,
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
            session: (&outcome.session).into(),
            isolation: worker
                .map_or(Isolation::None, |_| Isolation::Process)
                .name(),
            worker_rss_bytes: worker.map(|worker| worker.rss_bytes),
            worker_restarts: worker.map(|worker| worker.restarts),
            devices: outcome.devices.clone(),
        });
        let phases = reported.phases.iter().cloned();
        self.phases
            .extend(phases.map(|phase| PhaseReport { vm, phase }));
        let figures = reported.figures.iter().cloned();
        self.ratios
            .extend(figures.map(|figure| RatioReport { vm, figure }));
    }
}
