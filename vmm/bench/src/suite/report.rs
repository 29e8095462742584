//! What `bench suite` reports.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;

use causeway_bench_suites::{Program, Suite, Verdict, Way};
use causeway_terminal::{Code, Origin, escaped};
use causeway_vmm::host::Host;
use serde::Serialize;

use super::cell::SuiteCell;
use super::lives::Lives;
use super::models::Models;

/// Name and version of the schema.
pub const SCHEMA: &str = "causeway.bench-suite/1";

/// The report.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SuiteReport {
    /// Name and version of this format: always [`SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    schema: &'static str,
    /// Version of Causeway that made the report.
    pub causeway: &'static str,
    /// Time, command line, build and load of the benchmark.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine on which it ran.
    pub host: Host,
    /// The value of `--gpu`.
    pub backend: String,
    /// The suites, and which versions of them the recipes are for.
    pub suites: Vec<SuiteVersion>,
    /// Number of runs of each program by each way.
    pub repetitions: u32,
    /// Number of the signal that ended the benchmark early; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether each program passed by each way, or did not as its recipe says.
    pub passed: bool,
    /// How many did what, in words.
    pub result: String,
    /// Geometric means of the ratios to the native time, by way.
    pub means: BTreeMap<&'static str, Mean>,
    /// What each program did by each way by which it passed.
    pub cells: Vec<SuiteCell>,
    /// What did not pass, and why.
    pub missing: Vec<Missing>,
    /// Number of programs that were built, if none was run.
    #[serde(skip)]
    pub built: Option<usize>,
}

/// A suite.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SuiteVersion {
    /// Its name.
    pub name: String,
    /// Where its sources are published; absent for those of this project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The version for which the recipe was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A mean of several programs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mean {
    /// Geometric mean of the ratios that are quoted.
    pub ratio: f64,
    /// Number of programs.
    pub programs: usize,
}

/// What a program did not do, and why.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Missing {
    /// The program: its suite and name.
    pub workload: String,
    /// The way; absent if it was run by none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<&'static str>,
    /// Whether that is what its recipe says.
    pub outcome: Outcome,
    /// The reason, in words.
    pub reason: String,
}

/// What became of a program that did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The compiler did not build it.
    NotBuilt,
    /// It is not run in this size, by its recipe.
    Skipped,
    /// It wants what Causeway does not have, by its recipe, and failed.
    Lacks,
    /// It failed.
    Failed,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self
            .mechanism
            .map_or_else(String::new, |way| format!(" by {way}"));
        write!(
            f,
            "{}{by} {}: {}",
            self.workload,
            self.outcome.text(),
            self.reason
        )
    }
}

impl Outcome {
    /// Returns the outcome as text for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotBuilt => "not built",
            Self::Skipped => "skipped",
            Self::Lacks => "unsupported",
            Self::Failed => "failed",
        }
    }

    const fn is_expected(self) -> bool {
        matches!(self, Self::Skipped | Self::Lacks)
    }
}

/// Returns the JSON schema of reports.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    causeway_terminal::schema_of::<SuiteReport>(SCHEMA)
}

/// Returns what a program or compiler has printed as part of a line, without what could control a
/// terminal.
fn printable(text: &str) -> String {
    const CHARACTERS_MAX: usize = 300;
    let start: String = text.chars().take(CHARACTERS_MAX).collect();
    escaped(&start).into_owned()
}

impl SuiteReport {
    pub fn new(origin: Origin, gpu: &str, repetitions: u32, suites: &[Suite]) -> Self {
        let version = |suite: &Suite| SuiteVersion {
            name: suite.name.clone(),
            repository: suite.repository.clone(),
            commit: suite.commit.clone(),
        };
        Self {
            schema: SCHEMA,
            causeway: env!("CARGO_PKG_VERSION"),
            origin,
            host: Host::probe(),
            backend: gpu.to_owned(),
            suites: suites.iter().map(version).collect(),
            repetitions,
            signal: None,
            passed: false,
            result: String::new(),
            means: BTreeMap::new(),
            cells: Vec::new(),
            missing: Vec::new(),
            built: None,
        }
    }

    /// Takes in the programs that were not built, each with the reason.
    pub fn not_built(&mut self, mut programs: Vec<(String, String)>) {
        programs.sort();
        let missing = programs.into_iter();
        self.missing
            .extend(missing.map(|(workload, reason)| Missing {
                workload,
                mechanism: None,
                outcome: Outcome::NotBuilt,
                reason,
            }));
    }

    /// Takes in a program that is not run.
    pub fn skip(&mut self, program: &str, why: &str) {
        self.missing.push(Missing {
            workload: program.to_owned(),
            mechanism: None,
            outcome: Outcome::Skipped,
            reason: why.to_owned(),
        });
    }

    /// Returns whether a program is known not to run.
    pub fn is_missing(&self, program: &str) -> bool {
        self.missing
            .iter()
            .any(|missing| missing.workload == program)
    }

    /// Takes in what a program did by each way.
    pub fn take(&mut self, program: &Program, lives: &[Lives], models: Option<&Models>) {
        let native = lives.iter().find(|lives| lives.way == Way::Native);
        let native = native.filter(|lives| lives.verdict == Verdict::Passed);
        for of_way in lives {
            let missing = |outcome, reason: &str| Missing {
                workload: program.label(),
                mechanism: Some(of_way.way.name()),
                outcome,
                reason: printable(reason),
            };
            match &of_way.verdict {
                Verdict::Passed => {
                    self.cells
                        .extend(SuiteCell::of(program, of_way, (native, models)))
                }
                Verdict::Lacks(what) => self.missing.push(missing(Outcome::Lacks, what)),
                Verdict::Failed(why) => self.missing.push(missing(Outcome::Failed, why)),
            }
            self.signal = self.signal.or(of_way.signal);
        }
    }

    /// Returns the report of a benchmark that has ended.
    pub fn finished(mut self) -> Self {
        let all_as_expected = self
            .missing
            .iter()
            .all(|missing| missing.outcome.is_expected());
        self.passed = all_as_expected && self.signal.is_none();
        let mut parts = vec![match self.built {
            Some(count) => format!("{count} built"),
            None => format!("{} passed", self.cells.len()),
        }];
        for outcome in [
            Outcome::Lacks,
            Outcome::Skipped,
            Outcome::Failed,
            Outcome::NotBuilt,
        ] {
            let count = self
                .missing
                .iter()
                .filter(|missing| missing.outcome == outcome)
                .count();
            if count != 0 {
                parts.push(format!("{count} {}", outcome.text()));
            }
        }
        if let Some(signal) = self.signal {
            parts.push(format!("ended by signal {signal}"));
        }
        self.result = parts.join(", ");
        let ways = Way::ALL.map(Way::name).into_iter();
        self.means = ways
            .filter_map(|way| Some((way, self.mean(way)?)))
            .collect();
        self.origin = self.origin.ended();
        self
    }

    fn mean(&self, way: &str) -> Option<Mean> {
        let cells = self.cells.iter().filter(|cell| cell.mechanism == way);
        let logarithms = cells.filter_map(|cell| Some(cell.quoted?.ratio.median.ln()));
        let logarithms: Vec<f64> = logarithms.collect();
        let programs = logarithms.len();
        (programs != 0).then(|| Mean {
            ratio: (logarithms.iter().sum::<f64>() / programs as f64).exp(),
            programs,
        })
    }

    /// Returns the exit code.
    pub fn code(&self) -> ExitCode {
        match (self.signal, self.passed) {
            (Some(signal), _) => Code::of_signal(signal).into(),
            (None, false) => Code::GuestFailed.into(),
            (None, true) => ExitCode::SUCCESS,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use causeway_bench_suites::{DataPath, Exits, Life, Scale, Work};

    /// A report of a program that passed natively in `native` ns, and in a guest in `guest` ns.
    pub fn report(native: [f64; 3], guest: [f64; 3], status: u8) -> SuiteReport {
        let suite = Suite::named("rodinia", Scale::Gpu).unwrap();
        let program = suite.programs.iter().find(|it| it.right.is_none()).unwrap();
        let lives = |way, times: [f64; 3], status| {
            let mut lives = Lives::new(way);
            for (index, time_ns) in times.into_iter().enumerate() {
                let work = Work {
                    launches: 8,
                    replays: 2,
                    written_bytes: 2 << 20,
                    ..Work::default()
                };
                let exits = Exits {
                    user_space_per_operation: 30.0 - index as f64,
                    data_path: Some(DataPath {
                        operations: 8,
                        exits: 0,
                    }),
                    ..Exits::default()
                };
                let life = Life {
                    status,
                    time_ns,
                    work: (way == Way::Guest).then_some(work),
                    exits: (way == Way::Guest).then_some(exits),
                    ..Life::default()
                };
                lives.take(program, life, index == 2);
            }
            lives
        };
        let all = [
            lives(Way::Native, native, 0),
            lives(Way::Guest, guest, status),
        ];
        let mut report = SuiteReport::new(Origin::now(), "cuda", 2, std::slice::from_ref(&suite));
        report.take(program, &all, None);
        report.finished()
    }

    #[test]
    fn the_less_favourable_ratio_is_quoted_and_exits_are_those_of_the_worst_run() {
        let report = report([10.0, 20.0, 10.0], [20.0, 30.0, 15.0], 0);
        assert!(report.passed);
        assert_eq!(report.result, "2 passed");
        let guest = &report.cells[1];
        let quoted = guest.quoted.unwrap();
        assert_eq!((quoted.ratio.median, quoted.measured), (1.75, "in turn"));
        assert_eq!(guest.alone_over_native.unwrap().median, 1.5);
        assert_eq!(guest.exits_per_launch, Some(3.0));
        assert_eq!(guest.exits_per_mib, Some(15.0));
        assert!(
            report.cells[0].quoted.is_none(),
            "native itself has no ratio"
        );
        let mean = report.means["guest"];
        assert_eq!((mean.ratio, mean.programs), (1.75, 1));
    }

    #[test]
    fn one_way_that_fails_fails_the_benchmark_and_not_the_other() {
        let report = report([10.0; 3], [20.0; 3], 9);
        assert!(!report.passed);
        assert_eq!(report.result, "1 passed, 1 failed");
        assert_eq!(report.missing[0].mechanism, Some("guest"));
        assert_eq!(report.missing[0].reason, "exit status 9");
        assert_ne!(report.code(), ExitCode::SUCCESS);
    }
}
