//! The report of `bench exits`: what `--json` writes, and what the table shows.

use std::collections::BTreeMap;
use std::ptr;

use causeway_bench_mechanisms::{Measurement, SingleTimes};
use causeway_bench_workloads::measurement_plan::{Effort, Plan};
use causeway_bench_workloads::{Cell, Exclusion};
use causeway_vmm::host::Host;
use causeway_vmm::outcome::VmResult;
use causeway_vmm::passthrough::DeviceReport;
use serde::Serialize;

use super::alone;
use super::cells::{CellReport, faults_of_counting};
use super::counts::KvmCounts;
use super::omission::{Omission, left_out, not_reached};
use causeway_run::RunOutcome;
use causeway_run::report::PhaseReport;
use causeway_run::table;
use causeway_run::tracepoints::TracepointReport;
use causeway_terminal::{Failure, Origin};
use causeway_testdev::EndedBy;

/// Name and version of the report's format. Fields may be added; if the meaning of a field changes,
/// so does the number.
pub const SCHEMA: &str = "causeway.bench-exits/1";

/// Reasons why a planned cell has no samples.
const ENDED_BEFORE: &str = "the run ended before it was measured";
const NO_SAMPLE: &str = "no sample of this cell could be taken";

/// Report of `causeway bench exits` for one back end, as `--json` writes it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExitsReport {
    /// Name and version of this format: always [`SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: &'static str,
    /// Version of Causeway that made the report.
    pub causeway: &'static str,
    /// Time, command line, build and load of the benchmark on this back end.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine on which the benchmark ran.
    pub host: Host,
    /// Name of the back end and its device.
    pub backend: String,
    /// Value of `--gpu`, with the chosen back end in place of `auto`.
    pub gpu: String,
    /// Whether `--quick` was given, so that fewer sizes were measured.
    pub quick: bool,
    /// Number of samples of each cell, if the run reaches its end.
    pub repetitions: u32,
    /// Whether the guest passed, and KVM and the VMM counted the same exits in every phase.
    pub passed: bool,
    /// How the guest ended, or why the benchmark failed, as text for people.
    pub result: String,
    /// Errors in counts or samples. Each makes the benchmark fail even if the guest passed.
    pub problems: Vec<Problem>,
    /// Exits of the VM as KVM's tracepoints count them; absent without `--tracepoints`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracepoints: Option<TracepointReport>,
    /// How often other threads had the processor on which consumers waited, while all mechanisms
    /// were measured in turn. It touches the times of mechanism `mediated`; absent if too seldom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crowded_waits: Option<u64>,
    /// Devices that were passed through to the guest.
    pub devices: Vec<DeviceReport>,
    /// Results of all cells that were measured. A cell is a workload at one size by one mechanism.
    pub cells: Vec<CellReport>,
    /// Cells that were not measured, with the reasons.
    pub missing: Vec<Omission>,
    #[serde(skip)]
    plan: Plan,
    /// Cells that were measured alone.
    #[serde(skip)]
    alone: Vec<CellReport>,
}

/// An error in counts or samples, which makes the benchmark fail.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    /// Name of the phase, which is the name of its cell.
    pub phase: String,
    /// What is wrong, as text that follows the name.
    pub what: String,
}

/// Results of a run, complete or not.
struct RunData<'m> {
    taken: &'m [Measurement],
    phases: &'m [PhaseReport],
    counts: KvmCounts,
    /// Whether the guest reports that it measured all cells.
    guest_passed: bool,
}

impl ExitsReport {
    /// Returns the report of a run that has not begun. `plan` says which cells will be measured,
    /// `gpu` is the value of `--gpu`.
    pub fn new(plan: Plan, gpu: &str, origin: Origin) -> Self {
        Self {
            schema: SCHEMA,
            causeway: env!("CARGO_PKG_VERSION"),
            origin,
            host: Host::probe(),
            backend: gpu.to_owned(),
            gpu: gpu.to_owned(),
            quick: plan.effort == Effort::Quick,
            repetitions: plan.repetitions,
            passed: false,
            result: String::from("not run"),
            problems: Vec::new(),
            tracepoints: None,
            crowded_waits: None,
            devices: Vec::new(),
            cells: Vec::new(),
            missing: left_out(plan),
            plan,
            alone: Vec::new(),
        }
    }

    /// Returns the report for a back end that is not available or supports no mechanism, with the
    /// reason. Such a back end does not make the benchmark fail.
    pub fn absent(self, reason: &str) -> Self {
        let everything = |mechanism| Omission::everything(mechanism, reason);
        Self {
            passed: true,
            origin: self.origin.ended(),
            missing: self.plan.mechanisms().map(everything).collect(),
            ..self
        }
    }

    /// Fills the report with the results of a run that reached its end. `taken` are the samples of
    /// all cells; `passed` says whether the run passed.
    pub fn finished(self, finished: &RunOutcome, taken: &[Measurement], passed: bool) -> Self {
        let outcome = finished.outcomes.first();
        // A KVM with statistics always returns all of them.
        let has_statistics = outcome.is_some_and(|outcome| !outcome.kvm_exits.is_empty());
        let counts = match (has_statistics, finished.report.kvm_counts_ports()) {
            (false, _) => KvmCounts::Nothing,
            (true, true) => KvmCounts::Ports,
            (true, false) => KvmCounts::Emulations,
        };
        let measured = RunData {
            taken,
            phases: &finished.report.phases,
            counts,
            guest_passed: outcome.is_some_and(|outcome| matches!(outcome.result, VmResult::Pass)),
        };
        let mut report = Self {
            origin: self.origin.ended(),
            host: finished.report.host.clone(),
            backend: finished.report.backend.name.clone(),
            result: outcome.map_or_else(String::new, |outcome| outcome.result.to_string()),
            tracepoints: finished.report.tracepoints.clone(),
            crowded_waits: finished.report.vms.first().and_then(table::crowded_waits),
            devices: outcome.map_or_else(Vec::new, |outcome| outcome.devices.clone()),
            ..self
        };
        let generally: Vec<&PhaseReport> = finished.report.disagreements().collect();
        report.take_in(&measured, &generally);
        report.take_tracepoints();
        report.passed = passed && report.problems.is_empty();
        report
    }

    /// Fills the report with the samples `taken` by a run before it failed with `failure`. Such a
    /// report has no counts of exits.
    pub fn broken_off(mut self, failure: &Failure, taken: &[Measurement]) -> Self {
        let reached = |cell: &Cell| is_of(taken, cell);
        self.missing
            .extend(not_reached(self.plan, reached, ENDED_BEFORE));
        let cell = |cell: Cell| CellReport::of(&cell, taken, &[], KvmCounts::Nothing);
        self.cells = self.plan.cells().filter_map(cell).collect();
        self.result = failure.text();
        self.origin = self.origin.ended();
        self
    }

    /// Adds the times of operations that were timed one by one.
    pub fn with_singles(mut self, singles: &[SingleTimes]) -> Self {
        for cell in &mut self.cells {
            cell.take_singles(singles);
        }
        self
    }

    /// Adds `alone`, the report of a run that measured some of the mechanisms alone.
    pub fn take_alone(&mut self, alone: Self) {
        self.problems
            .extend(alone.problems.into_iter().map(|problem| Problem {
                phase: format!("alone: {}", problem.phase),
                ..problem
            }));
        self.passed &= alone.passed;
        if !alone.passed {
            self.result = format!("alone: {}", alone.result);
        }
        self.alone.extend(alone.cells);
        alone::add(&mut self.cells, &self.alone);
        self.origin = self.origin.clone().ended();
    }

    /// If `refused` is given, makes it the reason why cells of mechanism `passthrough` are missing.
    /// It says why the device of `--vfio` is not available.
    pub fn without_device(mut self, refused: Option<&str>) -> Self {
        let mut missing = self.missing.iter_mut();
        let row = missing.find(|missing| missing.reason == Exclusion::NoDevice.to_string());
        if let (Some(row), Some(refused)) = (row, refused) {
            refused.clone_into(&mut row.reason);
        }
        self
    }

    /// Adds the cells, the omissions and the errors. `disagreeing` are the phases in which the
    /// counters of any guest disagree.
    fn take_in(&mut self, measured: &RunData<'_>, disagreeing: &[&PhaseReport]) {
        let counted = CellPhases::of(self.plan, measured.phases);
        for phase in disagreeing.iter().filter(|phase| !counted.has(phase)) {
            self.problems.push(Problem {
                phase: phase.phase.name.clone(),
                what: format!(
                    "KVM counted {:?}, the VMM {:?}",
                    phase.by_kvm(),
                    phase.by_vmm()
                ),
            });
        }
        for cell in self.plan.cells() {
            self.take_cell(&cell, measured, counted.cell(&cell));
        }
        let reason = if measured.guest_passed {
            NO_SAMPLE
        } else {
            ENDED_BEFORE
        };
        let reached = |cell: &Cell| is_of(measured.taken, cell);
        self.missing.extend(not_reached(self.plan, reached, reason));
    }

    fn take_tracepoints(&mut self) {
        let traced = self.tracepoints.as_ref();
        let what = traced.and_then(TracepointReport::disagreement);
        self.problems.extend(what.map(|what| Problem {
            phase: String::from("the whole run"),
            what,
        }));
    }

    fn take_cell(&mut self, cell: &Cell, measured: &RunData<'_>, counted: &[&PhaseReport]) {
        let RunData { taken, counts, .. } = *measured;
        let found = CellReport::of(cell, taken, counted, counts);
        let samples = found.as_ref().map_or(0, |found| found.samples);
        let planned = self.repetitions as usize;
        // A run that is ended early may end between a sample and the end of its phase.
        let under_way = usize::from(!measured.guest_passed);
        let complete = samples.saturating_sub(under_way);
        let mut wrong = faults_of_counting(cell, complete, counted, counts);
        if measured.guest_passed && samples != planned {
            wrong.push(format!("{samples} samples were taken, not {planned}"));
        }
        let phase = cell.to_string();
        let problem = |what| Problem {
            phase: phase.clone(),
            what,
        };
        self.problems.extend(wrong.into_iter().map(problem));
        self.cells.extend(found);
    }
}

fn is_of(taken: &[Measurement], cell: &Cell) -> bool {
    taken.iter().any(|taken| taken.sample.cell == *cell)
}

/// The counted phases of each cell: all but the first, which warms up pages, clocks and caches, and
/// one that the end of the VM cut off, which has no sample.
struct CellPhases<'p>(BTreeMap<String, Vec<&'p PhaseReport>>);

impl<'p> CellPhases<'p> {
    fn of(plan: Plan, phases: &'p [PhaseReport]) -> Self {
        let guests = plan.cells().filter(|cell| !cell.mechanism.is_native());
        let phases_of = |name: &str| -> Vec<&PhaseReport> {
            let whole = phases.iter().filter(|p| p.phase.ended_by == EndedBy::Mark);
            let named = whole.filter(|phase| phase.phase.name == name);
            named.skip(1).collect()
        };
        let named = guests.map(|cell| cell.to_string());
        Self(named.map(|name| (name.clone(), phases_of(&name))).collect())
    }

    fn cell(&self, cell: &Cell) -> &[&'p PhaseReport] {
        self.0.get(&cell.to_string()).map_or(&[], Vec::as_slice)
    }

    fn has(&self, phase: &PhaseReport) -> bool {
        let named = self.0.get(&phase.phase.name);
        named.is_some_and(|phases| phases.iter().any(|other| ptr::eq(*other, phase)))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::exits::cells::tests::{cell, phase, taken};
    use causeway_bench_workloads::{MechanismKind, WorkloadKind};
    use causeway_run::tracepoints::Witness;
    use causeway_terminal::Code;

    /// A report of launches by `trap` and natively, of two repetitions, that is not filled.
    pub fn empty() -> ExitsReport {
        let plan = Plan::all(Effort::Quick, 2)
            .of_workloads(&[WorkloadKind::LaunchAndWait])
            .of_mechanisms(&[MechanismKind::Trap, MechanismKind::Native]);
        ExitsReport::new(plan, "software", Origin::now())
    }

    const SAMPLES: [(MechanismKind, u64); 4] = [
        (MechanismKind::Trap, 0),
        (MechanismKind::Native, 0),
        (MechanismKind::Native, 1),
        (MechanismKind::Trap, 1),
    ];

    /// What is wrong with a run of these many samples and phases with these exits by the VMM and
    /// KVM.
    fn problems(samples: usize, phases: &[[u64; 2]], guest_passed: bool) -> ExitsReport {
        let taken = SAMPLES[..samples]
            .iter()
            .map(|(mechanism, repetition)| taken(*mechanism, *repetition, 30));
        let phases = phases
            .iter()
            .map(|[by_vmm, by_kvm]| phase(MechanismKind::Trap, *by_vmm, *by_kvm));
        let phases: Vec<_> = phases.collect();
        let disagreeing = phases
            .iter()
            .filter(|phase| phase.by_kvm() != phase.by_vmm());
        let disagreeing: Vec<_> = disagreeing.collect();
        let measured = RunData {
            taken: &taken.collect::<Vec<_>>(),
            phases: &phases,
            counts: KvmCounts::Emulations,
            guest_passed,
        };
        let mut report = empty();
        report.take_in(&measured, &disagreeing);
        report
    }

    #[test]
    fn a_run_that_is_complete_has_no_problems() {
        let report = problems(4, &[[9, 9], [5, 5], [5, 5]], true);
        assert_eq!((report.problems, report.missing), (Vec::new(), Vec::new()));
        assert_eq!(report.cells.len(), 2);
        assert_eq!(report.cells[0].exits.as_ref().unwrap().operations % 2, 0);
    }

    #[test]
    fn each_phase_that_disagrees_is_named_once_the_first_too() {
        let report = problems(4, &[[9, 8], [5, 6], [5, 5]], true);
        let name = cell(MechanismKind::Trap).to_string();
        let named: Vec<&str> = report.problems.iter().map(|p| p.phase.as_str()).collect();
        assert_eq!(named, [&*name, &*name]);
        assert!(report.problems[1].what.starts_with("phase 1 of 2"));
    }

    #[test]
    fn tracepoints_that_disagree_are_a_problem_and_those_that_were_not_counted_none() {
        let mut report = empty();
        let skipped = String::from("no tracefs");
        report.tracepoints = Some(TracepointReport::Skipped { skipped });
        report.take_tracepoints();
        assert_eq!(report.problems, []);
        report.tracepoints = Some(TracepointReport::Counted(Witness {
            kvm_userspace_exit: 9,
            ..Witness::default()
        }));
        report.take_tracepoints();
        assert!(report.problems[0].what.contains("counted 9"), "{report:?}");
    }

    #[test]
    fn samples_that_were_not_counted_or_not_taken_are_problems() {
        let report = problems(4, &[[9, 9], [5, 5]], true);
        assert!(
            report.problems[0].what.contains("1 phases only"),
            "{report:?}"
        );
        assert!(report.cells[0].exits.is_none());
        let report = problems(3, &[[9, 9], [5, 5]], true);
        assert!(report.problems[0].what.contains("not 2"), "{report:?}");
    }

    #[test]
    fn a_run_that_ended_early_keeps_what_it_has_and_names_the_rest() {
        let report = problems(1, &[[9, 9], [5, 5], [5, 5]], false);
        assert_eq!(report.problems, []);
        assert_eq!(report.cells.len(), 1);
        assert_eq!(report.missing[0].mechanism, "native");
        assert_eq!(report.missing[0].reason, ENDED_BEFORE);
        let report = problems(4, &[[9, 9], [5, 5]], false);
        assert_eq!(report.problems, [], "its phase had not ended");
        let report = problems(4, &[[9, 9]], false);
        assert!(report.problems[0].what.contains("0 phases only"));
    }

    #[test]
    fn a_failure_of_the_run_keeps_samples_too() {
        let failure = Failure::gpu("the GPU is gone");
        let failure = Failure::new(Code::Crashed, "the run ended early", failure);
        let samples = [taken(MechanismKind::Trap, 0, 30)];
        let report = empty().broken_off(&failure, &samples);
        assert_eq!(report.cells[0].samples, 1);
        assert!(report.cells[0].exits.is_none() && !report.passed);
        assert_eq!(report.missing.len(), 1);
        assert!(report.result.contains("the GPU is gone"));
    }
}
