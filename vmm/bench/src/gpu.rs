//! `causeway bench gpu`: one VM whose guest times its use of the GPU, each sample beside the same done natively.

pub mod native;
mod report;
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use causeway_bench_workloads::LINES;
use causeway_cuda::GpuIdentity;
use causeway_testdev::Counterpart;

use super::arguments::GpuArguments;
use causeway_run::arguments::{PrivilegeLevel, RunArguments};
use causeway_run::configuration::Run;
use causeway_run::ending::{RunCode, exit_code, explain};
use causeway_run::program::ProgramArguments;
use causeway_run::{Extras, Finished, block_signals, execute};
use causeway_terminal as terminal;
use causeway_terminal::Failure;
use causeway_terminal::ReportFile;
use native::NativeGpu;
use report::{BenchReport, DeviceReport, LineReport, SCHEMA};

/// Runs it, prints the table, and gives the exit code.
pub fn run(arguments: &GpuArguments, command: Vec<String>) -> Result<ExitCode, Failure> {
    let run = Run::check(&run_arguments(arguments)?)?;
    let mut signals = block_signals()?;
    let report_file = ReportFile::prepare(arguments.json.as_deref())?;
    let native = NativeGpu::open(run.gpu.kind)?;
    if native.is_none() {
        terminal::say(
            "causeway: the software back end has no native counterpart: only the guest is timed",
        );
    }
    let (counterpart, identity) = match native {
        Some((native, identity)) => (Some(native as Arc<dyn Counterpart>), Some(identity)),
        None => (None, None),
    };
    let extras = Extras {
        counterpart,
        ..Extras::default()
    };
    let finished = execute(&run, Instant::now(), &mut signals, &extras)?;
    let code = exit_code(
        run.promise,
        &finished.outcomes,
        finished.report.disagreements().next().is_some(),
    );
    let Some(report) = report(&run, finished, command, identity, code.is_none()) else {
        return Ok(code.map_or(ExitCode::SUCCESS, RunCode::into));
    };
    if !report_file.is_output() {
        terminal::print_results(&table::render(&report))?;
    }
    report_file.write(&report)?;
    Ok(code.map_or(ExitCode::SUCCESS, RunCode::into))
}

/// The same as a run of the guest `bench`.
fn run_arguments(arguments: &GpuArguments) -> Result<RunArguments, Failure> {
    let mut guest = format!("repetitions={}", arguments.repetitions);
    if let Some(line) = &arguments.only {
        let mut known = LINES.iter().map(|line| line.name());
        if !known.any(|name| name == line) {
            let names: Vec<&str> = LINES.iter().map(|line| line.name()).collect();
            return Err(Failure::usage(format!(
                "--only {line} cannot be: there are {}",
                names.join("; ")
            )));
        }
        guest.push_str(",only=");
        guest.push_str(line);
    }
    Ok(RunArguments {
        guest: String::from("bench"),
        kernel: None,
        boot: None,
        initramfs: None,
        append: None,
        program: None,
        more: ProgramArguments::default(),
        vfio: Vec::new(),
        disk: Vec::new(),
        vcpus: 1,
        memory: arguments.memory,
        gpu: arguments.gpu.clone(),
        vms: 1,
        timeout: arguments.timeout,
        json: None,
        metrics_socket: None,
        arguments: guest,
        cpl: PrivilegeLevel::User,
        small_pages: false,
    })
}

fn report(
    run: &Run,
    finished: Finished,
    command: Vec<String>,
    identity: Option<GpuIdentity>,
    passed: bool,
) -> Option<BenchReport> {
    explain(run, &finished.outcomes);
    let outcome = finished.outcomes.into_iter().next()?;
    let reported = finished.guest_reports.into_iter().next()?;
    let version = identity.map(|gpu| gpu.driver_version);
    Some(BenchReport {
        schema: SCHEMA,
        causeway: env!("CARGO_PKG_VERSION"),
        command,
        host: finished.report.host,
        device: DeviceReport {
            name: finished.report.backend.name,
            driver: version.map(|v| format!("CUDA {}.{}", v / 1000, v % 1000 / 10)),
            compute_units: finished.report.backend.compute_units,
            memory_bytes: run.gpu.memory_bytes,
        },
        passed,
        result: outcome.result.to_string(),
        lines: LineReport::all(&reported),
        figures: reported.figures,
    })
}
