//! `causeway bench suite`: programs of benchmark suites, unmodified, by each way to run them.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use causeway_bench_suites::{Host, LifeError, Program, Scale, Suite, Verdict, Way, Workshop};
use causeway_run::block_signals_with;
use causeway_run::gpu::Kind;
use causeway_run::gpus::choose_gpu;
use causeway_run::progress::{Caption, Watch};
use causeway_terminal::{Code, Failure, Origin};
use causeway_vmm::signals::Signals;
use parking_lot::Mutex;

mod cell;
mod choices;
mod csv;
mod forms;
mod html;
mod lives;
mod models;
mod report;
mod table;

use super::arguments::SuiteArguments;
use crate::exits::compare;
use crate::outputs::Outputs;
use choices::{compiler, host, refused, suites, ways, with_causes};
use lives::Lives;
use models::Models;
use report::SuiteReport;

#[cfg(feature = "schema")]
pub use report::schema;

/// Time from a signal to the end: the program that runs ends, and the report is written.
const GRACE: Duration = Duration::from_secs(20);

/// Builds the programs, runs them, and prints what they did. Ends with 0 if each passed, or failed
/// as its recipe says.
///
/// # Errors
/// A failure with its exit code if an argument is invalid, the sources or the compiler are not
/// there, or an output cannot be written.
pub fn run(arguments: &SuiteArguments) -> Result<ExitCode, Failure> {
    if let [before, after] = &arguments.compare[..] {
        let schema = report::SCHEMA;
        return compare::run(schema, [before, after], arguments.json.as_deref());
    }
    let mut signals = block_signals_with(GRACE)?;
    let (gpu, text) = choose_gpu(&arguments.gpu)?;
    let is_software = matches!(gpu.kind, Kind::Software(_));
    let ways = ways(arguments, is_software)?;
    let scale = if is_software {
        Scale::Software
    } else {
        Scale::Gpu
    };
    let source = arguments
        .source
        .as_ref()
        .ok_or_else(|| Failure::usage("--source is missing"))?;
    let workshop = Workshop::open(source, &arguments.work, scale).map_err(refused)?;
    let suites = suites(arguments, &workshop, scale)?;
    let models = models::models(arguments.exits.as_deref())?;
    let files = [&arguments.json, &arguments.csv, &arguments.html];
    let outputs = Outputs::prepare(files.map(|path| path.as_deref()))?;
    let mut report = SuiteReport::new(Origin::now(), &text, arguments.repetitions, &suites);
    let host = host(arguments, text)?;
    let progress = Progress::start()?;
    build(
        arguments,
        &workshop,
        (&suites, &progress),
        &mut signals,
        &mut report,
    )?;
    if arguments.build_only {
        report.built = Some(to_build(&suites) - report.missing.len());
    } else if report.signal.is_none() {
        let bench = Bench {
            workshop: &workshop,
            ways: &ways,
            host,
            repetitions: arguments.repetitions,
            models,
        };
        bench.run(&suites, &progress, &mut signals, &mut report);
    }
    progress.finish();
    let report = report.finished();
    outputs.deliver(&report)?;
    Ok(report.code())
}

/// What the progress line says.
struct Progress {
    shown: Arc<Mutex<String>>,
    watch: Watch,
}

impl Progress {
    fn start() -> Result<Self, Failure> {
        let shown = Arc::new(Mutex::new(String::from("building")));
        let caption: Caption = {
            let shown = Arc::clone(&shown);
            Arc::new(move || shown.lock().clone())
        };
        let watch = Watch::start(Some(caption)).map_err(|e| {
            let message = "cannot start the thread that shows the progress";
            Failure::new(Code::Crashed, message, e)
        })?;
        Ok(Self { shown, watch })
    }

    fn show(&self, text: String) {
        *self.shown.lock() = text;
    }

    fn finish(self) {
        self.watch.finish();
    }
}

/// Builds all programs, or looks whether they are there.
fn build(
    arguments: &SuiteArguments,
    workshop: &Workshop,
    (suites, progress): (&[Suite], &Progress),
    signals: &mut Signals,
    report: &mut SuiteReport,
) -> Result<(), Failure> {
    let compiler = match arguments.built {
        true => None,
        false => Some(compiler(arguments, workshop)?),
    };
    let jobs = arguments.jobs.unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
    });
    let (failed, built) = (Mutex::new(Vec::new()), Mutex::new(0));
    let all = to_build(suites);
    report.signal = workshop.build(
        suites,
        compiler.as_ref(),
        (jobs as usize, signals),
        &|program, done| {
            let mut built = built.lock();
            *built += 1;
            progress.show(format!("{built} of {all} built: {}", program.label()));
            if let Err(error) = done {
                failed.lock().push((program.label(), with_causes(&error)));
            }
        },
    );
    report.not_built(failed.into_inner());
    Ok(())
}

/// Returns the number of programs that are built.
fn to_build(suites: &[Suite]) -> usize {
    let all = suites.iter().flat_map(|suite| &suite.programs);
    all.filter(|program| program.skip.is_none()).count()
}

/// The measurement.
struct Bench<'a> {
    workshop: &'a Workshop,
    ways: &'a [Way],
    host: Host,
    repetitions: u32,
    models: Option<Models>,
}

impl Bench<'_> {
    /// Runs all programs that are built.
    fn run(
        &self,
        suites: &[Suite],
        progress: &Progress,
        signals: &mut Signals,
        report: &mut SuiteReport,
    ) {
        let all: usize = suites.iter().map(|suite| suite.programs.len()).sum();
        let programs = suites
            .iter()
            .flat_map(|suite| suite.programs.iter().map(move |program| (suite, program)));
        for (index, (suite, program)) in programs.enumerate() {
            if report.is_missing(&program.label()) {
                continue;
            }
            progress.show(format!("{} of {all}: {}", index + 1, program.label()));
            if let Some(skip) = &program.skip {
                report.skip(&program.label(), skip);
                continue;
            }
            let lives = self.lives(suite, program, signals);
            report.take(program, &lives, self.models.as_ref());
            if report.signal.is_some() {
                break;
            }
        }
    }

    /// Runs a program by all ways, first in turn, then each way alone. A way that does not pass is
    /// not tried again, and after a signal nothing is.
    fn lives(&self, suite: &Suite, program: &Program, signals: &mut Signals) -> Vec<Lives> {
        let mut lives: Vec<Lives> = self.ways.iter().map(|way| Lives::new(*way)).collect();
        let (ways, repetitions) = (lives.len(), self.repetitions as usize);
        let in_turn = (0..repetitions).flat_map(|_| 0..ways);
        let in_turn = in_turn.map(|way| (way, false));
        let alone = (0..ways).flat_map(|way| std::iter::repeat_n((way, true), repetitions));
        for (way, is_alone) in in_turn.chain(alone.filter(|_| ways > 1)) {
            let lives = &mut lives[way];
            self.live(suite, program, lives, is_alone, signals);
            if lives.signal.is_some() {
                break;
            }
        }
        lives
    }

    fn live(
        &self,
        suite: &Suite,
        program: &Program,
        lives: &mut Lives,
        is_alone: bool,
        signals: &mut Signals,
    ) {
        if lives.verdict != Verdict::Passed {
            return;
        }
        let life = self
            .workshop
            .run((suite, program), lives.way, &self.host, signals);
        match life {
            Ok(life) => lives.take(program, life, is_alone),
            Err(LifeError::Signal(signal)) => lives.signal = Some(signal),
            Err(error) => lives.verdict = Verdict::Failed(with_causes(&error)),
        }
    }
}
