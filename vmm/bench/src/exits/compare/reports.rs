//! The parts of two reports that are compared.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::exits::report::SCHEMA;
use causeway_terminal::{Code, Failure};

/// The parts of a report that are compared.
#[derive(Deserialize)]
pub struct Report {
    pub causeway: String,
    pub host: Host,
    pub backend: String,
    pub quick: bool,
    pub passed: bool,
    pub result: String,
    pub cells: Vec<Cell>,
}

/// The host.
#[derive(Deserialize)]
pub struct Host {
    pub kvm: String,
    pub kernel: String,
    pub cpu: String,
    pub cpus: u64,
    /// All other fields.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
pub struct Cell {
    pub workload: String,
    pub size: u64,
    pub mechanism: String,
    pub operations: u64,
    pub time: Time,
    pub over_native: Option<Ratio>,
    pub exits: Option<Exits>,
}

/// Ratio to the host's time in the same repetition.
#[derive(Deserialize)]
pub struct Ratio {
    pub median: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

#[derive(Deserialize)]
pub struct Time {
    pub median_ns: f64,
    pub samples_ns: Vec<f64>,
}

#[derive(Deserialize)]
pub struct Exits {
    pub user_space_per_operation: f64,
}

impl Cell {
    /// Returns the key of a cell, which is the same in both reports.
    pub fn key(&self) -> (&str, u64, &str) {
        (&self.workload, self.size, &self.mechanism)
    }

    /// Returns the name of the cell in messages.
    pub fn name(&self) -> String {
        let (workload, mechanism) = (printable(&self.workload), printable(&self.mechanism));
        format!("{workload} {} by {mechanism}", self.size)
    }
}

/// Reads a report. Refuses one of another schema, or of a run that failed.
pub fn read(path: &Path) -> Result<Report, Failure> {
    let name = path.display();
    let text = fs::read(path)
        .map_err(|e| Failure::new(Code::Usage, format!("cannot read {name} of --compare"), e))?;
    let value: Value = serde_json::from_slice(&text).map_err(|e| no_report(path, e))?;
    let schema = value.get("schema").and_then(Value::as_str);
    if schema != Some(SCHEMA) {
        let other = schema.map_or_else(|| "none".to_owned(), printable);
        return Err(Failure::usage(format!(
            "cannot compare {name}: its schema is {other}, not {SCHEMA}"
        )));
    }
    let report: Report = serde_json::from_value(value).map_err(|e| no_report(path, e))?;
    if !report.passed {
        return Err(Failure::usage(format!(
            "cannot compare {name}: its run did not pass ({}); measure again",
            printable(&report.result)
        )));
    }
    Ok(report)
}

fn no_report(path: &Path, error: serde_json::Error) -> Failure {
    let message = format!("{} is not a report of `bench exits --json`", path.display());
    Failure::new(Code::Usage, message, error)
}

/// Returns text without control characters, because reports are not trusted.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(160).collect()
}
