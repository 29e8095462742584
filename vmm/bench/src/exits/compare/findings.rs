//! Differences between two reports: what `--compare` prints, and what it writes as JSON.

use std::fmt::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use super::reports::{Cell, Report, printable};
use causeway_bench_medians::figures::{short, time};
use causeway_terminal::Origin;

/// Name and version of the format. Fields may be added; if the meaning of a field changes, so does
/// the number.
pub const SCHEMA: &str = "causeway.bench-exits-compare/1";

/// What `--compare` writes as JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Name and version of this format: always [`SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: &'static str,
    /// Version of Causeway that compared the reports.
    pub causeway: &'static str,
    /// Time, command line and build of the comparison.
    #[serde(flatten)]
    pub origin: Origin,
    /// The first report.
    pub before: Source,
    /// The second report.
    pub after: Source,
    /// Whether the reports differ.
    pub verdict: Verdict,
    /// What was found.
    #[serde(flatten)]
    pub findings: Findings,
}

/// One of the two reports.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Source {
    /// Path of the file, as it was typed.
    pub file: String,
    /// Version of Causeway that made the report.
    pub causeway: String,
    /// Revision of the build that made the report; absent in reports of older versions.
    pub revision: Option<String>,
    /// When the report was made; absent in reports of older versions.
    pub time: Option<String>,
}

/// Whether two reports differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing changed beyond noise.
    Unchanged,
    /// Something changed.
    Changed,
    /// No cell has times that can be compared, and nothing else changed.
    NotComparable,
}

/// Differences between two reports.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Findings {
    /// What differs between hosts and settings of the two runs.
    pub settings: Vec<Setting>,
    /// Number of cells that are in both reports.
    pub cells_compared: usize,
    /// Changes of cells beyond noise.
    pub changes: Vec<Change>,
    /// Programs that passed in one report, and did not in the other.
    pub outcomes: Vec<OutcomeChange>,
    /// Cells whose times cannot be compared.
    pub not_compared: Vec<NotCompared>,
    /// Cells that only one report has.
    pub only_in_one: Vec<OnlyInOne>,
}

/// A property of the host or of the run that differs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setting {
    /// Name of the property.
    pub name: &'static str,
    /// Value in the first report.
    pub before: String,
    /// Value in the second report.
    pub after: String,
}

/// What identifies a cell in both reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellName {
    /// Name of the workload.
    pub workload: String,
    /// Size of the workload; 0 for a program of a suite.
    pub size: u64,
    /// Name of the mechanism.
    pub mechanism: String,
}

/// What has changed of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Median time of one operation, in nanoseconds.
    Time,
    /// Exits to user space for one operation.
    Exits,
    /// Number of operations in a sample.
    Operations,
}

/// A change of a cell.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// The cell.
    #[serde(flatten)]
    pub cell: CellName,
    /// What has changed.
    pub figure: Figure,
    /// Value in the first report.
    pub before: f64,
    /// Value in the second report.
    pub after: f64,
}

/// A program of a suite that passed in one report, and did not in the other.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutcomeChange {
    /// The program, and the way by which it was run.
    #[serde(flatten)]
    pub cell: CellName,
    /// What it did in the first report: `passed`, or what else and why.
    pub before: String,
    /// The same in the second report.
    pub after: String,
}

/// A cell whose times cannot be compared.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotCompared {
    /// The cell.
    #[serde(flatten)]
    pub cell: CellName,
    /// Why not, as text for people.
    pub reason: String,
}

/// A cell that only one report has.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OnlyInOne {
    /// The cell.
    #[serde(flatten)]
    pub cell: CellName,
    /// Which report has it: `first` or `second`.
    pub report: &'static str,
}

impl Source {
    /// Returns what identifies `report`, which was read from `path`.
    pub fn of(path: &Path, report: &Report) -> Self {
        let shown = |text: &Option<String>| text.as_deref().map(printable);
        Self {
            file: path.display().to_string(),
            causeway: printable(&report.causeway),
            revision: shown(&report.revision),
            time: shown(&report.time),
        }
    }
}

impl CellName {
    /// Returns the name of `cell`, without control characters, because reports are not trusted.
    pub fn of(cell: &Cell) -> Self {
        Self {
            workload: printable(&cell.workload),
            size: cell.size,
            mechanism: printable(&cell.mechanism),
        }
    }
}

impl Findings {
    /// Returns whether the reports differ.
    pub fn verdict(&self) -> Verdict {
        if !self.changes.is_empty() || !self.outcomes.is_empty() {
            Verdict::Changed
        } else if self.not_compared.len() == self.cells_compared {
            Verdict::NotComparable
        } else {
            Verdict::Unchanged
        }
    }

    /// Returns the findings as text for people, with the number of cells and changes last.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        for Setting {
            name,
            before,
            after,
        } in &self.settings
        {
            let _ = writeln!(out, "differs: {name}: {before} → {after}");
        }
        for change in &self.changes {
            let _ = writeln!(out, "{change}");
        }
        for OutcomeChange {
            cell,
            before,
            after,
        } in &self.outcomes
        {
            let _ = writeln!(out, "{cell}: {before} → {after}");
        }
        for NotCompared { cell, reason } in &self.not_compared {
            let _ = writeln!(out, "{cell}: {reason}");
        }
        for OnlyInOne { cell, report } in &self.only_in_one {
            let _ = writeln!(out, "{cell}: in the {report} report only");
        }
        let _ = writeln!(
            out,
            "{} cells compared, {} changes beyond noise{}",
            self.cells_compared,
            self.changes.len() + self.outcomes.len(),
            match self.not_compared.len() {
                0 => String::new(),
                n => format!("; the times of {n} could not be compared"),
            }
        );
        out
    }
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workload,
            size,
            mechanism,
        } = self;
        match size {
            0 => write!(f, "{workload} by {mechanism}"),
            size => write!(f, "{workload} {size} by {mechanism}"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (self.before, self.after);
        write!(f, "{}: ", self.cell)?;
        match self.figure {
            Figure::Time => {
                let ratio = short(after / before);
                write!(f, "time {} → {} ({ratio}×)", time(before), time(after))
            }
            Figure::Exits => write!(f, "exits {before} → {after} for each operation"),
            Figure::Operations => write!(f, "{before} → {after} operations in a sample"),
        }
    }
}
