//! What the work of a program would take by other ways to virtualize a GPU: counts of the program,
//! times the exits of one operation that `bench exits` has measured.

use std::path::Path;

use causeway_bench_suites::Work;
use causeway_bench_workloads::MechanismKind;
use causeway_terminal::Failure;
use serde::{Deserialize, Serialize};

use crate::exits::compare::reports::{Report, read};
use crate::exits::report::SCHEMA;

/// Exits that reach the VMM, at least, if the program's work were virtualized in other ways.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
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
    /// Of copies: their bytes, and the exits of one.
    copies: Vec<(u64, f64)>,
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
        let report = read(path, SCHEMA)?;
        let whole = |mechanism: MechanismKind| {
            Units::of(&report, mechanism.name()).ok_or_else(|| {
                Failure::usage(format!(
                    "invalid value {} for --exits: it lacks cells of submit, allocate or copy-in \
                     by mediated or {}: measure again without --only and --mechanism",
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
    fn of(report: &Report, mechanism: &str) -> Option<Self> {
        let cells = |workload: &str, mechanism: &str| {
            let cells = report.cells.iter();
            let cells = cells.filter(|it| it.workload == workload && it.mechanism == mechanism);
            let each = cells.filter_map(|it| {
                let exits = it.exits.as_ref()?.user_space_per_operation;
                Some((it.size, exits))
            });
            each.collect::<Vec<_>>()
        };
        let most = |cells: Vec<(u64, f64)>| cells.into_iter().max_by_key(|(size, _)| *size);
        let (_, launch) = most(cells("submit", mechanism))?;
        let (_, allocation) = most(cells("allocate", mechanism))?;
        // Here each batch of an allocation is an exit.
        let (_, batches) = most(cells("allocate", MechanismKind::Mediated.name()))?;
        let copies = cells("copy-in", mechanism);
        (batches > 0.0 && !copies.is_empty()).then_some(Self {
            launch,
            batch: allocation / batches,
            copies,
        })
    }

    fn of_work(&self, work: &Work) -> f64 {
        let launches = (work.launches + work.replays + work.fills) as f64;
        let mean = work.written_bytes.checked_div(work.copies).unwrap_or(0);
        let copies = work.copies as f64 * self.copy(mean);
        launches * self.launch + copies + work.batches as f64 * self.batch
    }

    /// Returns the exits of a copy of this many bytes: those of the largest copy that was measured
    /// and is not larger. Where one takes several, they grow with its size.
    fn copy(&self, bytes: u64) -> f64 {
        let fitting = self.copies.iter().rfind(|(size, _)| *size <= bytes);
        let (size, exits) = *fitting.unwrap_or(&self.copies[0]);
        match exits > 1.0 {
            true => exits * bytes as f64 / size as f64,
            false => exits,
        }
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

    fn units(launch: f64, batch: f64, copies: &[(u64, f64)]) -> Units {
        Units {
            launch,
            batch,
            copies: copies.to_vec(),
        }
    }

    #[test]
    fn each_piece_of_work_takes_its_exits() {
        let trap = units(4.0, 4.0, &[(64, 8.0), (4096, 512.0), (65536, 8192.0)]);
        let work = Work {
            launches: 10,
            replays: 1,
            copies: 2,
            fills: 1,
            written_bytes: 2 * 65536,
            batches: 3,
        };
        assert_eq!(trap.of_work(&work), 12.0 * 4.0 + 2.0 * 8192.0 + 3.0 * 4.0);
        assert_eq!(trap.of_work(&Work::default()), 0.0);
        assert_eq!(trap.copy(1 << 20), 131_072.0, "8 bytes for each exit");
    }

    #[test]
    fn what_goes_by_reference_takes_one_exit_however_long_it_is() {
        let forward = units(0.001, 0.5, &[(64, 0.0016), (4096, 0.067), (65536, 1.0)]);
        assert_eq!(forward.copy(64), 0.0016);
        assert_eq!(forward.copy(5000), 0.067);
        assert_eq!(forward.copy(64 << 20), 1.0);
    }

    #[test]
    fn a_report_gives_the_exits_of_its_largest_cells() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = path.join("../../docs/benchmarks/h200/exits/full.cuda.json");
        let models = Models::read(&path).unwrap();
        let work = Work {
            launches: 1000,
            ..Work::default()
        };
        let elsewhere = models.elsewhere(&work);
        assert!(
            elsewhere.trap >= 4000.0 && elsewhere.forward < 10.0,
            "{elsewhere:?}"
        );
    }
}
