//! What the work of a program would take by other ways to virtualize a GPU: counts of the program,
//! times the exits of one operation that `bench exits` has measured.

use std::path::Path;

use causeway_bench_suites::Work;
use causeway_bench_workloads::MechanismKind;
use causeway_terminal::Failure;
use serde::Serialize;

use crate::exits::compare::reports::{Report, read};
use crate::exits::report::SCHEMA;

/// Exits that reach the VMM, at least, if the program's work were virtualized in other ways.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Elsewhere {
    /// By forwarding each call.
    pub forward: f64,
    /// By trapping each access of the GPU's memory and registers.
    pub trap: f64,
}

/// Exits of single operations by one mechanism.
struct Units {
    /// Of a launch among many with one wait.
    launch: f64,
    /// Of a control batch, as those of allocations.
    batch: f64,
}

/// The exits of single operations by the mechanisms that are modelled.
pub struct Models {
    forward: Units,
    trap: Units,
}

impl Models {
    /// Reads them from a report of `bench exits --json`.
    ///
    /// # Errors
    /// A usage failure if `path` is no such report, or has not measured all that this takes.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let report = read(path, SCHEMA, "--exits")?;
        let whole = |mechanism: MechanismKind| {
            Units::of(&report, mechanism.name()).ok_or_else(|| {
                Failure::usage(format!(
                    "invalid value {} for --exits: it lacks exits of submit or allocate by \
                     mediated or {}: measure again without --only and --mechanism",
                    path.display(),
                    mechanism.name()
                ))
            })
        };
        Ok(Self {
            forward: whole(MechanismKind::Forward)?,
            trap: whole(MechanismKind::Trap)?,
        })
    }

    /// Returns the exits of a program that has done this work.
    pub fn elsewhere(&self, work: &Work) -> Elsewhere {
        Elsewhere {
            forward: self.forward.of_work(work),
            trap: self.trap.of_work(work),
        }
    }
}

impl Units {
    /// Returns the exits at the largest size, where they are fewest for each operation.
    fn of(report: &Report, mechanism: &str) -> Option<Self> {
        let largest = |workload: &str, mechanism: &str| {
            let cells = report.cells.iter();
            let cells = cells.filter(|it| it.workload == workload && it.mechanism == mechanism);
            let cell = cells.max_by_key(|it| it.size)?;
            let exits = cell.exits.as_ref()?.user_space_per_operation;
            (0.0..1e9).contains(&exits).then_some(exits)
        };
        // Here each batch of an allocation is an exit.
        let batches = largest("allocate", MechanismKind::Mediated.name())?;
        let allocation = largest("allocate", mechanism)?;
        (batches >= 1.0).then_some(Self {
            launch: largest("submit", mechanism)?,
            batch: allocation / batches,
        })
    }

    /// Copies are not in it: whether their bytes pass through the VMM depends on whose memory they
    /// are in, which is not counted.
    fn of_work(&self, work: &Work) -> f64 {
        let commands = work.launches + work.replays + work.fills;
        commands as f64 * self.launch + work.batches as f64 * self.batch
    }
}

/// Returns the models of a report, if one is named.
///
/// # Errors
/// As those of [`Models::read`].
pub fn models(path: Option<&Path>) -> Result<Option<Models>, Failure> {
    path.map(Models::read).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models() -> Models {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"));
        Models::read(&path.join("../../docs/benchmarks/h200/exits/quick.cuda.json")).unwrap()
    }

    #[test]
    fn commands_and_batches_take_their_exits_and_copies_none() {
        let mut work = Work {
            launches: 900,
            replays: 60,
            fills: 40,
            batches: 100,
            ..Work::default()
        };
        let elsewhere = models().elsewhere(&work);
        assert!((elsewhere.trap - 4401.75).abs() < 0.1, "{elsewhere:?}");
        assert!((elsewhere.forward - 52.0).abs() < 0.1, "{elsewhere:?}");
        (work.copies, work.written_bytes) = (5, 1 << 40);
        assert_eq!(models().elsewhere(&work), elsewhere);
        let none = models().elsewhere(&Work::default());
        assert_eq!((none.forward, none.trap), (0.0, 0.0));
    }
}
