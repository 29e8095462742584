//! `causeway bench gpu`: one VM whose guest times GPU operations. After each sample, the host times
//! the same operation natively. Then each side is measured alone. With `--peer`, the operations are
//! those of two GPUs.

mod alone;
pub mod native;
mod peers;
mod report;
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use causeway_cuda::GpuIdentity;
use causeway_testdev::Counterpart;
use causeway_vmm::signals::Signals;
use causeway_vmm::waits::Wait;

use super::arguments::GpuArguments;
use alone::Alone;
use causeway_run::arguments::PrivilegeLevel;
use causeway_run::boot;
use causeway_run::configuration::{Run, RunSettings};
use causeway_run::ending::{RunCode, exit_code, explain};
use causeway_run::{Extras, RunOutcome, block_signals, execute};
use causeway_terminal as terminal;
use causeway_terminal::{Failure, Origin, ReportFile};
use native::NativeGpu;
use peers::Lines;
use report::{BenchReport, DeviceReport, LineReport, SCHEMA};

/// Returns the JSON schema of reports.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    terminal::schema_of::<BenchReport>(SCHEMA)
}

/// Runs `causeway bench gpu`, prints the table, and returns the exit code.
///
/// # Errors
/// A failure with its exit code if an argument is invalid, the run fails, or the report cannot be
/// written.
pub fn run(arguments: &GpuArguments) -> Result<ExitCode, Failure> {
    let (origin, begun) = (Origin::now(), Instant::now());
    let lines = Lines::of(arguments)?;
    let run = checked_run(arguments, lines)?;
    let mut signals = block_signals()?;
    let report_file = ReportFile::prepare(arguments.json.as_deref())?;
    let (finished, identity) = in_turn(&run, lines, &mut signals)?;
    let disagree = finished.report.disagreements().next().is_some();
    let mut code = exit_code(run.promise, &finished.outcomes, disagree);
    explain(&run, &finished.outcomes);
    let mut alone = Alone::default();
    let mut failed = None;
    let reported = finished.guest_reports.first();
    if let (None, Some(_), Some(reported)) = (code, &identity, reported) {
        let limit = run.settings.timeout_s.duration();
        let deadline = limit.map(|limit| begun + limit);
        match alone.measure((&run, lines), reported, &mut signals, deadline) {
            Ok(end) => code = end,
            Err(failure) => failed = Some(failure),
        }
    }
    let passed = code.is_none() && failed.is_none();
    let Some(report) = report(&run, finished, &alone, origin, identity, passed) else {
        return Ok(code.map_or(ExitCode::SUCCESS, RunCode::into));
    };
    let mut printed = Ok(());
    if !report_file.is_output() {
        printed = terminal::print_results(&table::render(&report));
    }
    // Written even if the table could not be printed.
    report_file.write(&report)?;
    printed?;
    match failed {
        Some(failure) => Err(failure),
        None => Ok(code.map_or(ExitCode::SUCCESS, RunCode::into)),
    }
}

/// Measures guest and host in turn, or the guest alone if the host runs nothing natively on this
/// back end: then there is no identity of a GPU.
fn in_turn(
    run: &Run,
    lines: Lines,
    signals: &mut Signals,
) -> Result<(RunOutcome, Option<GpuIdentity>), Failure> {
    let wait = Wait::begin("the GPU's driver to start");
    let (native, identity) = NativeGpu::open(run, lines)?.unzip();
    drop(wait);
    if native.is_none() {
        terminal::say(
            "causeway: only the guest is timed, because the host runs nothing natively on this \
             back end",
        );
    }
    let extras = Extras {
        counterpart: native.map(|native| native as Arc<dyn Counterpart>),
        ..Extras::default()
    };
    let finished = execute(run, Instant::now(), signals, &extras)?;
    // The host's GPU is closed here, with the last owner of `extras`.
    Ok((finished, identity))
}

/// Returns a run of the embedded guest `bench`.
fn checked_run(arguments: &GpuArguments, lines: Lines) -> Result<Run, Failure> {
    let mut guest = format!("repetitions={}", arguments.repetitions);
    if let Lines::OfTwo { mib } = lines {
        guest.push_str(&format!(",peers={mib}"));
    }
    if let Some(line) = &arguments.only {
        let names: Vec<&str> = lines.all().iter().map(|line| line.name()).collect();
        if !names.contains(&line.as_str()) {
            let known = names.join("; ");
            return Err(Failure::usage(format!(
                "invalid value {line} for --only: choose one of {known}"
            )));
        }
        guest.push_str(",only=");
        guest.push_str(line);
    }
    let boot = boot::embedded("bench", &guest, PrivilegeLevel::User)?;
    let mut gpus = arguments.gpu.iter().cloned();
    let settings = RunSettings {
        gpu: gpus.next().unwrap_or_default(),
        further_gpus: gpus.collect(),
        memory_mib: arguments.memory,
        timeout_s: arguments.timeout,
        ..RunSettings::new("bench", boot)
    };
    let run = settings.check()?;
    lines.check_memory(&run)?;
    Ok(run)
}

fn report(
    run: &Run,
    finished: RunOutcome,
    alone: &Alone,
    origin: Origin,
    identity: Option<GpuIdentity>,
    passed: bool,
) -> Option<BenchReport> {
    let outcome = finished.outcomes.into_iter().next()?;
    let reported = finished.guest_reports.into_iter().next()?;
    let version = identity.map(|gpu| gpu.driver_version);
    let driver = version.map(|v| format!("CUDA {}.{}", v / 1000, v % 1000 / 10));
    let gpus = run.gpus().map(|(gpu, _)| gpu.memory_bytes);
    let backends = std::iter::once(&finished.report.backend);
    let backends = backends.chain(&finished.report.further_backends);
    let mut devices = backends
        .zip(gpus)
        .map(|(backend, memory_bytes)| DeviceReport {
            name: backend.name.clone(),
            driver: driver.clone(),
            compute_units: backend.compute_units,
            memory_bytes,
        });
    Some(BenchReport {
        schema: SCHEMA,
        causeway: env!("CARGO_PKG_VERSION"),
        origin: origin.ended(),
        device: devices.next()?,
        peer: devices.next(),
        host: finished.report.host,
        passed,
        result: outcome.result.to_string(),
        lines: LineReport::all(&reported, &finished.report.phases, alone),
        figures: reported.figures,
    })
}
