//! The report of `bench exits`: what `--json` writes, and what the table shows.

use causeway_laboratory::Taken;
use causeway_laboratory_workloads::plan::{Effort, Plan};
use causeway_laboratory_workloads::{LeftOut, MechanismKind, WorkloadKind};
use causeway_vmm::harness::Phase;
use causeway_vmm::host::Host;
use causeway_vmm::passthrough::DeviceReport;
use serde::Serialize;

use super::cells::{CellReport, ExitReport};
use crate::configuration::Run;
use crate::run::Finished;

/// Name and version of the schema. Fields may be added; a changed meaning changes the number.
pub const SCHEMA: &str = "causeway.bench-exits/1";

/// All workloads of a mechanism that is not measured.
const EVERYTHING: &str = "everything";

/// A whole benchmark.
#[derive(Debug, Serialize)]
pub struct ExitsReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of this program.
    pub causeway: &'static str,
    /// What was typed.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// Back end and device.
    pub backend: String,
    /// What `--gpu` came to.
    pub gpu: String,
    /// Whether it was a quick one.
    pub quick: bool,
    /// Samples of each cell.
    pub repetitions: u32,
    /// Whether the guest passed and both exit counters agree in every phase.
    pub passed: bool,
    /// How the guest ended.
    pub result: String,
    /// Devices that were passed through to the guest.
    pub devices: Vec<DeviceReport>,
    /// What was measured.
    pub cells: Vec<CellReport>,
    /// What was not, and why.
    pub missing: Vec<Missing>,
}

/// What was not measured.
#[derive(Debug, Serialize)]
pub struct Missing {
    /// Mechanism.
    pub mechanism: &'static str,
    /// Workload and size, or everything.
    pub what: String,
    /// Why.
    pub reason: String,
}

impl ExitsReport {
    /// Puts together what was measured.
    pub fn new(
        plan: Plan,
        run: &Run,
        finished: &Finished,
        taken: &[Taken],
        command: Vec<String>,
        passed: bool,
    ) -> Self {
        let outcome = finished.outcomes.first();
        let phases: &[Phase] = outcome.map_or(&[], |outcome| &outcome.phases);
        let ports = finished.report.kvm_counts_ports();
        let cells = plan
            .cells()
            .filter_map(|cell| CellReport::of(&cell, taken, phases, ports));
        let cells: Vec<_> = cells.collect();
        let mut exits = cells.iter().filter_map(|cell| cell.exits.as_ref());
        let agree = exits.all(ExitReport::agrees);
        Self {
            schema: SCHEMA,
            causeway: env!("CARGO_PKG_VERSION"),
            command,
            host: finished.report.host.clone(),
            backend: finished.report.backend.name.clone(),
            gpu: run.gpu_text.clone(),
            quick: plan.effort == Effort::Quick,
            repetitions: plan.repetitions,
            passed: passed && agree,
            result: outcome.map_or_else(String::new, |outcome| outcome.result.to_string()),
            devices: outcome.map_or_else(Vec::new, |outcome| outcome.devices.clone()),
            cells,
            missing: missing(plan),
        }
    }

    /// Of a back end that is not there, or cannot do any of it.
    pub fn absent(plan: Plan, run: &Run, command: Vec<String>, reason: &str) -> Self {
        let absent = plan.mechanisms().map(|mechanism| Missing {
            mechanism: mechanism.name(),
            what: String::from(EVERYTHING),
            reason: reason.to_owned(),
        });
        Self {
            schema: SCHEMA,
            causeway: env!("CARGO_PKG_VERSION"),
            command,
            host: Host::probe(),
            backend: run.gpu_text.clone(),
            gpu: run.gpu_text.clone(),
            quick: plan.effort == Effort::Quick,
            repetitions: plan.repetitions,
            passed: true,
            result: String::from("not run"),
            devices: Vec::new(),
            cells: Vec::new(),
            missing: absent.collect(),
        }
    }

    /// With the reason why the device that was asked for was not there, if there is one.
    pub fn without_device(mut self, refused: Option<&str>) -> Self {
        let mut missing = self.missing.iter_mut();
        let row = missing.find(|missing| missing.reason == LeftOut::NoDevice.to_string());
        if let (Some(row), Some(refused)) = (row, refused) {
            refused.clone_into(&mut row.reason);
        }
        self
    }

    /// Cells in which KVM and the VMM have counted differently.
    pub fn disagreements(&self) -> impl Iterator<Item = &CellReport> {
        let differs = |exits: &ExitReport| !exits.agrees();
        self.cells
            .iter()
            .filter(move |cell| cell.exits.as_ref().is_some_and(differs))
    }
}

/// What the plan leaves out.
fn missing(plan: Plan) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut of_device = plan.asked_mechanisms().filter(|m| m.is_of_device());
    if let (None, Some(mechanism)) = (plan.device, of_device.next()) {
        missing.push(Missing {
            mechanism: mechanism.name(),
            what: String::from(EVERYTHING),
            reason: LeftOut::NoDevice.to_string(),
        });
    }
    // What the host does beside the guest lacks what the guest lacks.
    let compared = |m: &MechanismKind| *m != MechanismKind::NativeBar;
    for workload in plan.workloads() {
        for mechanism in plan.mechanisms().filter(compared) {
            missing_of(plan, workload, mechanism, &mut missing);
        }
    }
    missing
}

/// What it leaves out of one workload: all sizes together, where they have the same reason.
fn missing_of(
    plan: Plan,
    workload: WorkloadKind,
    mechanism: MechanismKind,
    missing: &mut Vec<Missing>,
) {
    let description = workload.description();
    for size in (description.sizes)(plan.effort) {
        let Err(reason) = plan.cell(workload, mechanism, *size) else {
            continue;
        };
        let what = match reason.is_of_all_sizes() {
            true => description.name.to_owned(),
            false => format!("{} {size} {}", description.name, description.unit),
        };
        missing.push(Missing {
            mechanism: mechanism.name(),
            what,
            reason: reason.to_string(),
        });
        if reason.is_of_all_sizes() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_laboratory_workloads::DeviceMemory;

    fn rows(plan: Plan) -> Vec<(&'static str, String, String)> {
        let missing = missing(plan).into_iter();
        missing
            .map(|row| (row.mechanism, row.what, row.reason))
            .collect()
    }

    #[test]
    fn without_a_device_one_row_says_so_if_one_was_asked_for() {
        let plan = Plan::all(Effort::Quick, 1).of_workloads(&[WorkloadKind::Load]);
        let all = rows(plan);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!((all[0].0, all[0].1.as_str()), ("passthrough", EVERYTHING));
        assert!(all[0].2.contains("--vfio"), "{all:?}");
        let mediated = plan.of_mechanisms(&[MechanismKind::Mediated]);
        assert_eq!(rows(mediated), []);
    }

    #[test]
    fn what_a_device_lacks_is_a_row_for_each_workload() {
        let plan = Plan::all(Effort::Quick, 1).with_device(Some(DeviceMemory {
            vendor: 1,
            device: 2,
            bar: 0,
            offset: 0,
            bytes: 1 << 20,
        }));
        let passed = plan.of_mechanisms(&[MechanismKind::Passthrough, MechanismKind::NativeBar]);
        let rows = rows(passed);
        assert!(rows.iter().all(|row| row.0 == "passthrough"), "{rows:?}");
        let of = |what: &str| rows.iter().filter(|row| row.1 == what).count();
        assert_eq!((of("submit"), of("allocate"), of("load")), (1, 1, 0));
        assert_eq!(of("copy-in 4194304 B"), 1, "{rows:?}");
    }
}
