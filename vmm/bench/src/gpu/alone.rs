//! Each side measured alone: this process holds no CUDA context while the guest is timed, and no
//! guest exists while the host is.
//!
//! When two processes use one GPU in turn, the GPU switches between their contexts. That makes
//! operations slower, and not equally so on both sides: a ratio of times taken in turn says what
//! sharing costs, too.

use std::time::Instant;

use causeway_bench_workloads::Line;
use causeway_run::configuration::Run;
use causeway_run::ending::{RunCode, exit_code, explain};
use causeway_run::report::PhaseReport;
use causeway_run::{Extras, execute};
use causeway_testdev::{Counterpart, Report};
use causeway_vmm::signals::Signals;

use super::native::NativeGpu;
use super::peers::Lines;
use causeway_terminal::{Code, Failure, TimeLimit};

/// Number of samples that are not counted, because they warm up pages, clocks and caches. As many
/// as in the guest.
const WARM_UP: u32 = 3;

/// What each side took alone, as far as it was measured.
#[derive(Debug, Default)]
pub struct Alone {
    /// What the guest reported, and its phases.
    pub guest: Option<(Report, Vec<PhaseReport>)>,
    /// Times of the host.
    pub native: Vec<NativeTimes>,
}

/// Times of the host for one operation at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeTimes {
    /// The operation.
    pub line: Line,
    /// Bytes that one operation moves.
    pub bytes: u64,
    /// Time of one operation in nanoseconds: the mean of each sample.
    pub samples_ns: Vec<f64>,
    /// Times of single operations in nanoseconds; empty if they were not taken.
    pub singles_ns: Vec<u64>,
}

/// An operation to be measured on the host.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wanted {
    line: Line,
    bytes: u64,
    operations: u32,
    samples: usize,
    singles: usize,
}

impl Alone {
    /// Measures the guest of `run`, then every operation of `in_turn` on the host: what the guest
    /// reported when it and the host measured in turn before. The caller must have closed the GPU
    /// that the host used then. Returns the exit code if the guest failed, a signal arrived or
    /// `deadline` came; what was measured until then is kept. Without a deadline there is no limit.
    ///
    /// # Errors
    /// A failure if the guest cannot run, or the GPU cannot be used.
    pub fn measure(
        &mut self,
        (run, lines): (&Run, Lines),
        in_turn: &Report,
        signals: &mut Signals,
        deadline: Option<Instant>,
    ) -> Result<Option<RunCode>, Failure> {
        let mut run = run.clone();
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            run.settings.timeout_s = TimeLimit::seconds(left.as_secs().max(1));
        }
        let finished = execute(&run, Instant::now(), signals, &Extras::default())?;
        explain(&run, &finished.outcomes);
        let disagree = finished.report.disagreements().next().is_some();
        let code = exit_code(run.promise, &finished.outcomes, disagree);
        let reported = finished.guest_reports.into_iter().next();
        self.guest = reported.map(|reported| (reported, finished.report.phases));
        if code.is_some() {
            return Ok(code);
        }
        let end = self.measure_host((&run, lines), in_turn, signals, deadline)?;
        Ok(end.map(RunCode::Own))
    }

    fn measure_host(
        &mut self,
        (run, lines): (&Run, Lines),
        in_turn: &Report,
        signals: &mut Signals,
        deadline: Option<Instant>,
    ) -> Result<Option<Code>, Failure> {
        let Some((native, _)) = NativeGpu::open(run, lines)? else {
            return Ok(None);
        };
        for wanted in wanted(in_turn) {
            let mut samples_ns = Vec::with_capacity(wanted.samples);
            let warm_up = WARM_UP as usize;
            for number in 0..warm_up + wanted.samples {
                if let Some(end) = end(signals, deadline) {
                    return Ok(Some(end));
                }
                let taken = native.measure(wanted.line, wanted.operations, wanted.bytes);
                if number >= warm_up {
                    let operations = f64::from(wanted.operations);
                    samples_ns.extend(taken.map(|all| all.as_nanos() as f64 / operations));
                }
            }
            let one = |_| native.measure(wanted.line, 1, wanted.bytes);
            let singles = (0..wanted.singles).map_while(one);
            self.native.push(NativeTimes {
                line: wanted.line,
                bytes: wanted.bytes,
                samples_ns,
                singles_ns: singles.map(|time| time.as_nanos() as u64).collect(),
            });
        }
        Ok(None)
    }
}

/// Returns why to stop, if there is a reason.
fn end(signals: &mut Signals, deadline: Option<Instant>) -> Option<Code> {
    let signal = signals.take().map(Code::of_signal);
    let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    signal.or_else(|| is_over.then_some(Code::Timeout))
}

/// Returns the operations that the host has measured in turn with the guest, in their order.
fn wanted(in_turn: &Report) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    let samples = in_turn.samples.iter();
    for sample in samples.filter(|sample| sample.native_ns.is_some()) {
        let is_same =
            |wanted: &&mut Wanted| (wanted.line, wanted.bytes) == (sample.line, sample.bytes);
        match all.iter_mut().find(is_same) {
            Some(known) => known.samples += 1,
            None => all.push(Wanted {
                line: sample.line,
                bytes: sample.bytes,
                operations: sample.operations,
                samples: 1,
                singles: 0,
            }),
        }
    }
    for singles in &in_turn.singles {
        let is_same =
            |wanted: &&mut Wanted| (wanted.line, wanted.bytes) == (singles.line, singles.bytes);
        if let Some(known) = all.iter_mut().find(is_same) {
            known.singles = singles.native_ns.len();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_testdev::{Sample, Singles};

    #[test]
    fn what_is_measured_alone_is_what_the_host_could_measure_in_turn() {
        let sample = |line, bytes, native_ns| Sample {
            line,
            operations: 10,
            bytes,
            guest_ns: 1,
            native_ns,
        };
        let samples = vec![
            sample(Line::Pipelined, 0, Some(1)),
            sample(Line::Allocate, 64, Some(1)),
            sample(Line::Pipelined, 0, Some(1)),
            sample(Line::Allocate, 128, Some(1)),
            sample(Line::Register, 64, None),
        ];
        let singles = vec![Singles {
            line: Line::Allocate,
            bytes: 128,
            timer_ns: 1,
            guest_ns: vec![1; 8],
            native_ns: vec![1; 7],
        }];
        let in_turn = Report {
            samples,
            singles,
            ..Report::default()
        };
        let found: Vec<_> = wanted(&in_turn)
            .iter()
            .map(|wanted| (wanted.line, wanted.bytes, wanted.samples, wanted.singles))
            .collect();
        let (pipelined, allocate) = (Line::Pipelined, Line::Allocate);
        assert_eq!(
            found,
            [
                (pipelined, 0, 2, 0),
                (allocate, 64, 1, 0),
                (allocate, 128, 1, 7)
            ]
        );
    }
}
