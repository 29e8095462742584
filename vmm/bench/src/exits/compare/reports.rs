//! The parts of two reports that are compared.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use causeway_terminal::{Code, Failure};

/// The parts of a report of `bench exits` or `bench suite` that `--compare` reads.
#[derive(Deserialize)]
pub struct Report {
    pub causeway: String,
    /// Absent in reports of older versions, as is the time.
    pub revision: Option<String>,
    pub time: Option<String>,
    pub host: Host,
    pub backend: String,
    /// Only `bench exits` has it.
    #[serde(default)]
    pub quick: bool,
    pub passed: bool,
    pub result: String,
    pub cells: Vec<Cell>,
    /// Only `bench suite` has it.
    #[serde(default)]
    pub missing: Vec<Missing>,
}

/// A program that did not pass.
#[derive(Deserialize)]
pub struct Missing {
    pub workload: String,
    /// Absent if it was run by no mechanism.
    pub mechanism: Option<String>,
    pub outcome: String,
    pub reason: String,
}

/// The machine on which the report was made.
#[derive(Deserialize)]
pub struct Host {
    pub kvm: String,
    pub kernel: String,
    pub cpu: String,
    pub cpus: u64,
    /// All fields of the host that have no field here.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

/// Results of a workload at one size by one mechanism.
#[derive(Deserialize)]
pub struct Cell {
    pub workload: String,
    /// 0 for programs of suites, which have one size.
    #[serde(default)]
    pub size: u64,
    pub mechanism: String,
    /// Runs of programs of suites are one operation each.
    #[serde(default = "one")]
    pub operations: u64,
    pub time: Time,
    pub over_native: Option<Ratio>,
    pub exits: Option<Exits>,
}

/// Ratio of the time to the host's time in the same repetition, with its confidence interval.
#[derive(Deserialize)]
pub struct Ratio {
    pub median: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// Times of one operation.
#[derive(Deserialize)]
pub struct Time {
    pub median_ns: f64,
    pub samples_ns: Vec<f64>,
}

/// VM exits of one operation.
#[derive(Deserialize)]
pub struct Exits {
    pub user_space_per_operation: f64,
}

const fn one() -> u64 {
    1
}

impl Report {
    /// Returns what a program that did not pass did by a mechanism.
    pub fn missing(&self, workload: &str, mechanism: &str) -> Option<&Missing> {
        self.missing.iter().find(|missing| {
            let by = missing.mechanism.as_deref();
            missing.workload == workload && by.is_none_or(|by| by == mechanism)
        })
    }
}

impl Missing {
    /// Returns whether the run passed all the same, as for a program that its recipe leaves out.
    fn is_expected(&self) -> bool {
        matches!(&*self.outcome, "skipped" | "lacks")
    }
}

impl Cell {
    /// Returns what identifies the cell in both reports: workload, size and mechanism.
    pub fn key(&self) -> (&str, u64, &str) {
        (&self.workload, self.size, &self.mechanism)
    }
}

/// Reads a report of the format `wanted`: one of `bench exits --json`, or of `bench suite --json`.
/// `option` is what names it.
///
/// # Errors
/// A usage failure if the file cannot be read, has another schema, or is the report of a run that
/// failed without saying which programs did.
pub fn read(path: &Path, wanted: &str, option: &str) -> Result<Report, Failure> {
    let name = path.display();
    let text = fs::read(path).map_err(|e| {
        Failure::new(
            Code::Usage,
            format!("cannot read report {name} of {option}"),
            e,
        )
    })?;
    let value: Value = serde_json::from_slice(&text).map_err(|e| no_report(path, e))?;
    let schema = value.get("schema").and_then(Value::as_str);
    if schema != Some(wanted) {
        let other = schema.map_or_else(|| "none".to_owned(), printable);
        return Err(Failure::usage(format!(
            "cannot use {name} for {option}: its format (field `schema`) is {other}, not {wanted}; \
             measure again"
        )));
    }
    let report: Report = serde_json::from_value(value).map_err(|e| no_report(path, e))?;
    if !report.passed && report.missing.iter().all(Missing::is_expected) {
        return Err(Failure::usage(format!(
            "cannot use {name} for {option}: the benchmark did not pass ({}); measure again",
            printable(&report.result)
        )));
    }
    Ok(report)
}

fn no_report(path: &Path, error: serde_json::Error) -> Failure {
    let message = format!("{} is not a report of a benchmark's --json", path.display());
    Failure::new(Code::Usage, message, error)
}

/// Returns at most 160 characters of `text`, without control characters, because reports are not
/// trusted.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(160).collect()
}
