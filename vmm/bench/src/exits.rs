//! `causeway bench exits`: one VM whose guest runs the same workloads by each mechanism, in turn.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use causeway_bench_mechanisms::{Measurement, Mechanisms, SingleTimes};
use causeway_bench_workloads::measurement_plan::{Effort, Plan};
use causeway_bench_workloads::{DeviceMemory, MECHANISMS, MechanismKind, WORKLOADS, WorkloadKind};
use causeway_testdev::PHASES_MAX;
use causeway_vmm::passthrough::DeviceSource;
use causeway_vmm::signals::Signals;

mod alone;
mod back_ends;
mod cells;
pub mod compare;
pub mod counts;
pub mod csv;
mod device;
pub mod html;
mod omission;
mod outputs;
pub mod report;
mod table;

#[cfg(feature = "schema")]
pub use compare::schema as comparison_schema;

use super::arguments::ExitsArguments;
use crate::outputs::Outputs;
use alone::Part;
use back_ends::BackEnds;
use causeway_run::back_end;
use causeway_run::boot;
use causeway_run::configuration::{Run, RunSettings};
use causeway_run::ending::{RunCode, exit_code, explain};
use causeway_run::gpu::Kind;
use causeway_run::gpus::unavailable;
use causeway_run::progress::Caption;
use causeway_run::{Extras, RunOutcome, block_signals, execute};
use causeway_terminal::{Code, Failure, Origin, TimeLimit};
use device::DeviceChoice;
use omission::Omission;
use report::ExitsReport;

/// Name of the embedded guest.
const GUEST: &str = "mechanisms";

/// Returns the JSON schema of reports.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    causeway_terminal::schema_of::<ExitsReport>(report::SCHEMA)
}

/// Runs `causeway bench exits` on each back end and prints the tables. If a back end does not
/// succeed, later ones are not measured, and its exit code is returned.
///
/// # Errors
/// A failure with its exit code if an argument is invalid, a run fails, or an output cannot be
/// written.
pub fn run(arguments: &ExitsArguments) -> Result<ExitCode, Failure> {
    if let [before, after] = &arguments.compare[..] {
        let schema = report::SCHEMA;
        return compare::run(schema, [before, after], arguments.json.as_deref());
    }
    let plan = plan(arguments)?;
    device::address(arguments)?;
    let BackEnds { chosen, absent } = BackEnds::find(arguments.gpu.as_deref())?;
    back_ends::settle_environment(&chosen)?;
    let mut signals = block_signals()?;
    let mut outputs = Vec::new();
    for (index, gpu) in chosen.iter().enumerate() {
        let also = (index != 0).then_some(&**gpu);
        outputs.push(outputs::prepare(arguments, also)?);
    }
    let mut absent = absent;
    for (gpu, outputs) in chosen.iter().zip(outputs) {
        let one = One {
            arguments,
            gpu,
            absent: absent.take(),
        };
        let code = one.measure(plan, &mut signals, outputs)?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The measurement of one back end.
struct One<'a> {
    arguments: &'a ExitsArguments,
    gpu: &'a str,
    /// A back end that this host lacks, for the report.
    absent: Option<Omission>,
}

impl One<'_> {
    fn measure(
        self,
        plan: Plan,
        signals: &mut Signals,
        outputs: Outputs,
    ) -> Result<ExitCode, Failure> {
        let arguments = self.arguments;
        let (origin, begun) = (Origin::now(), Instant::now());
        let ram_bytes = arguments.memory.saturating_mul(1 << 20);
        let DeviceChoice { device, refused } = device::find(device::address(arguments)?, ram_bytes);
        let plan = plan.with_device(device.as_ref().map(|device| device.memory()));
        let run = checked_run(arguments, self.gpu, plan)?;
        let mut report = ExitsReport::new(plan, &run.settings.gpu, origin);
        report.missing.extend(self.absent.clone());
        let mechanisms = match mechanisms(&run, plan) {
            Ok(mechanisms) => Arc::new(mechanisms.with_device(device.clone())),
            Err(failure) => {
                outputs.deliver(&report.absent(&failure.text()))?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        let devices = device.clone().map(|device| device as Arc<dyn DeviceSource>);
        let finished = execute_with(&run, plan, &mechanisms, devices, signals);
        // The device is released when its memory is no longer used.
        device.iter().for_each(|device| device.let_go());
        let report = report.without_device(refused.as_deref());
        let taken = Taken::of(&mechanisms);
        // Ends the work of this process on the GPU.
        drop(mechanisms);
        let (mut report, code) = match finished {
            Ok(finished) => conclude(&run, &finished, report, &taken),
            Err(failure) => return broken_off(failure, report, &taken, outputs),
        };
        let mut end = Ok(code);
        if code.is_none() && matches!(run.gpu.kind, Kind::Cuda(_)) {
            let deadline = run.settings.timeout_s.duration().map(|limit| begun + limit);
            end = self.alone(&run, plan, &mut report, signals, deadline);
        }
        // What was measured in turn is kept.
        report.passed &= end.is_ok();
        outputs.deliver(&report)?;
        end.map(|code| code.map_or(ExitCode::SUCCESS, RunCode::into))
    }

    /// Measures the guest's mechanism and those of this process alone, and adds the results to
    /// `report`. `run` is the run that measured all mechanisms in turn. Returns the exit code if a
    /// run did not pass.
    fn alone(
        &self,
        run: &Run,
        plan: Plan,
        report: &mut ExitsReport,
        signals: &mut Signals,
        deadline: Option<Instant>,
    ) -> Result<Option<RunCode>, Failure> {
        for part in Part::ALL {
            let Some(plan) = part.of(plan) else {
                continue;
            };
            let (gpu, mechanisms) = match part {
                Part::Guest => (self.gpu, Mechanisms::of_guest(plan.effort)),
                // The guest has a session that uses no GPU.
                Part::Host => ("software", mechanisms(run, plan)?),
            };
            let mut run = checked_run(self.arguments, gpu, plan)?;
            if let Some(deadline) = deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                run.settings.timeout_s = TimeLimit::seconds(left.as_secs().max(1));
            }
            let mechanisms = Arc::new(mechanisms);
            let finished = execute_with(&run, plan, &mechanisms, None, signals)?;
            let taken = Taken::of(&mechanisms);
            let alone = ExitsReport::new(plan, gpu, report.origin.clone());
            let (alone, code) = conclude(&run, &finished, alone, &taken);
            report.take_alone(alone);
            if code.is_some() {
                return Ok(code);
            }
        }
        Ok(None)
    }
}

/// The samples of a run.
struct Taken {
    samples: Vec<Measurement>,
    singles: Vec<SingleTimes>,
}

impl Taken {
    fn of(mechanisms: &Mechanisms) -> Self {
        Self {
            samples: mechanisms.taken(),
            singles: mechanisms.singles(),
        }
    }
}

/// Runs the guest of `run`, which measures the cells of `plan`.
fn execute_with(
    run: &Run,
    plan: Plan,
    mechanisms: &Arc<Mechanisms>,
    devices: Option<Arc<dyn DeviceSource>>,
    signals: &mut Signals,
) -> Result<RunOutcome, Failure> {
    let extras = Extras {
        attached: Some(mechanisms.clone()),
        devices,
        caption: Some(caption(plan, mechanisms)),
        ..Extras::default()
    };
    execute(run, Instant::now(), signals, &extras)
}

/// Fills the report of a run that reached its end. Returns it with the exit code of a run that did
/// not pass.
fn conclude(
    run: &Run,
    finished: &RunOutcome,
    report: ExitsReport,
    taken: &Taken,
) -> (ExitsReport, Option<RunCode>) {
    explain(run, &finished.outcomes);
    let code = exit_code(run.promise, &finished.outcomes, false);
    let report = report.finished(finished, &taken.samples, code.is_none());
    let report = report.with_singles(&taken.singles);
    let has_problems = !report.problems.is_empty();
    let code = exit_code(run.promise, &finished.outcomes, has_problems);
    (report, code)
}

/// Writes the reports of a run that failed with `failure`, if it has taken samples, and returns the
/// failure.
fn broken_off(
    failure: Failure,
    report: ExitsReport,
    taken: &Taken,
    outputs: Outputs,
) -> Result<ExitCode, Failure> {
    if !taken.samples.is_empty() {
        let report = report.broken_off(&failure, &taken.samples);
        // The failure of the run determines the exit code; the failure of an output is only
        // printed.
        if let Err(other) = outputs.deliver(&report.with_singles(&taken.singles)) {
            other.print();
        }
    }
    Err(failure)
}

/// Returns the devices of all mechanisms, if the back end supports them.
fn mechanisms(run: &Run, plan: Plan) -> Result<Mechanisms, Failure> {
    let equipment =
        back_end::equipment_here(&run.gpu).map_err(|e| unavailable(&run.settings.gpu, e))?;
    Mechanisms::new(equipment.backend, plan.effort).map_err(|e| {
        let message = format!("--gpu {} cannot run this benchmark", run.settings.gpu);
        Failure::new(Code::Gpu, message, e)
    })
}

/// Returns the text of the progress line.
fn caption(plan: Plan, mechanisms: &Arc<Mechanisms>) -> Caption {
    let all = plan.cells().count() * plan.repetitions as usize;
    let mechanisms = Arc::clone(mechanisms);
    Arc::new(move || {
        let (count, last) = mechanisms.progress();
        let last = last.map_or_else(String::new, |taken| {
            let cell = taken.sample.cell;
            format!(": {} by {}", cell.workload.name(), cell.mechanism.name())
        });
        format!("{count} of {all} samples{last}")
    })
}

/// Returns the plan: the cells to measure.
fn plan(arguments: &ExitsArguments) -> Result<Plan, Failure> {
    let (effort, usual) = match arguments.quick {
        true => (Effort::Quick, 12),
        false => (Effort::Full, 24),
    };
    let repetitions = arguments.repetitions.unwrap_or(usual);
    let mut plan = Plan::all(effort, repetitions);
    if !arguments.only.is_empty() {
        let known = WORKLOADS.map(WorkloadKind::name);
        plan = plan.of_workloads(&chosen(
            "--only",
            &arguments.only,
            WorkloadKind::named,
            &known,
        )?);
    }
    if !arguments.mechanism.is_empty() {
        let known = MECHANISMS.map(MechanismKind::name);
        let names = &arguments.mechanism;
        plan = plan.of_mechanisms(&chosen("--mechanism", names, MechanismKind::named, &known)?);
    }
    // The device is opened later, and may turn out to have less memory.
    let device = arguments.vfio.as_ref().map(|_| DeviceMemory {
        bytes: u64::MAX,
        ..DeviceMemory::default()
    });
    let guest_cells = plan.with_device(device).cells();
    let guest_cells = guest_cells.filter(|cell| !cell.mechanism.is_native());
    // One more for the warm-up, which is not counted.
    let cells = guest_cells.count();
    let most = PHASES_MAX / cells.max(1) - 1;
    if repetitions as usize > most {
        return Err(Failure::usage(format!(
            "invalid value {repetitions} for --repetitions: choose at most {most}, because \
             {cells} pairs of workload and mechanism are measured; to choose more, choose fewer \
             workloads with --only"
        )));
    }
    Ok(plan)
}

/// Parses the names of an option. The failure for an unknown name lists the known ones.
fn chosen<T>(
    option: &str,
    names: &[String],
    named: impl Fn(&str) -> Option<T>,
    known: &[&str],
) -> Result<Vec<T>, Failure> {
    let find = |name: &String| {
        named(name).ok_or_else(|| {
            Failure::usage(format!(
                "invalid value {name} for {option}: choose one of {}",
                known.join(", ")
            ))
        })
    };
    names.iter().map(find).collect()
}

/// Returns a run of the embedded guest that measures the cells of `plan`.
fn checked_run(arguments: &ExitsArguments, gpu: &str, plan: Plan) -> Result<Run, Failure> {
    let boot = boot::embedded(GUEST, &plan.to_string(), arguments.cpl)?;
    let device = plan.device.and(device::address(arguments)?);
    let settings = RunSettings {
        gpu: gpu.to_owned(),
        memory_mib: arguments.memory,
        timeout_s: arguments.timeout,
        devices: device.into_iter().collect(),
        tracepoints: arguments.tracepoints,
        ..RunSettings::new(GUEST, boot)
    };
    settings.check()
}
