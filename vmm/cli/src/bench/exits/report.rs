//! The report of `bench exits`: what `--json` writes, and what the table shows.

use causeway_laboratory::Taken;
use causeway_laboratory_workloads::plan::{Effort, Plan};
use causeway_vmm::harness::Phase;
use causeway_vmm::host::Host;
use serde::Serialize;

use super::cells::{CellReport, ExitReport};
use crate::configuration::Run;
use crate::run::Finished;

/// Name and version of the schema. Fields may be added; a changed meaning changes the number.
pub const SCHEMA: &str = "causeway.bench-exits/1";

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
            cells,
            missing: missing(plan),
        }
    }

    /// Of a back end that is not there, or cannot do any of it.
    pub fn absent(plan: Plan, run: &Run, command: Vec<String>, reason: &str) -> Self {
        let absent = plan.mechanisms().map(|mechanism| Missing {
            mechanism: mechanism.name(),
            what: String::from("everything"),
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
            cells: Vec::new(),
            missing: absent.collect(),
        }
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
    let mut missing = vec![Missing {
        mechanism: "passthrough",
        what: String::from("everything"),
        reason: String::from("no device is passed through to the guest"),
    }];
    for workload in plan.workloads() {
        let description = workload.description();
        for size in (description.sizes)(plan.effort) {
            let left_out = plan
                .mechanisms()
                .filter(|m| workload.cell(*m, plan.effort, *size).is_none());
            missing.extend(left_out.map(|mechanism| Missing {
                mechanism: mechanism.name(),
                what: format!("{} {size} {}", description.name, description.unit),
                reason: String::from("it would take too many exits"),
            }));
        }
    }
    missing
}
