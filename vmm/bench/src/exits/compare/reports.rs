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
    #[serde(default)]
    pub missing: Vec<Missing>,
}

/// A program that did not pass, or what `bench exits` did not measure.
#[derive(Deserialize)]
pub struct Missing {
    pub workload: Option<String>,
    /// Absent if it was run by no mechanism.
    pub mechanism: Option<String>,
    /// What became of a program; only `bench suite` has it.
    pub outcome: Option<String>,
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
    /// Returns what became of a program that did not pass by a mechanism, and why.
    pub fn failing(&self, workload: &str, mechanism: &str) -> Option<(&str, &str)> {
        self.missing.iter().find_map(|missing| {
            let by = missing.mechanism.as_deref();
            let is_it = missing.workload.as_deref() == Some(workload)
                && by.is_none_or(|by| by == mechanism);
            let outcome = missing.outcome.as_deref().filter(|_| is_it)?;
            Some((outcome, &*missing.reason))
        })
    }
}

impl Missing {
    /// Returns whether the run passed all the same, as for a program that its recipe leaves out.
    fn is_expected(&self) -> bool {
        matches!(self.outcome.as_deref(), None | Some("skipped" | "lacks"))
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
    let text = fs::read(path).map_err(|e| {
        let message = format!("cannot read report {} of {option}", path.display());
        Failure::new(Code::Usage, message, e)
    })?;
    parse(&text, path, wanted, option)
}

/// Returns the report in `text`, which is that of the file `path`, as [`read`] does.
fn parse(text: &[u8], path: &Path, wanted: &str, option: &str) -> Result<Report, Failure> {
    let name = path.display();
    let value: Value = serde_json::from_slice(text).map_err(|e| no_report(path, e))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a report says of a run in which something is missing.
    fn read_with(passed: bool, missing: &str) -> Result<Report, Failure> {
        let host = r#"{"kvm": "svm", "kernel": "Linux", "cpu": "a processor", "cpus": 2}"#;
        let text = format!(
            r#"{{"schema": "s", "causeway": "1", "host": {host}, "backend": "software",
                "passed": {passed}, "result": "ended", "cells": [], "missing": [{missing}]}}"#
        );
        parse(text.as_bytes(), Path::new("a.json"), "s", "--compare")
    }

    #[test]
    fn reports_of_both_benchmarks_are_read_and_only_named_failures_excuse_one() {
        let left_out = r#"{"mechanism": "all", "what": "everything", "workload": null,
            "size": null, "unit": "", "reason": "no GPU"}"#;
        let failed = r#"{"workload": "a/b", "mechanism": "process", "outcome": "failed",
            "reason": "wrong"}"#;
        let skipped = r#"{"workload": "a/b", "outcome": "skipped", "reason": "slow"}"#;
        let report = read_with(true, left_out).unwrap();
        assert!(report.failing("a/b", "process").is_none());
        let report = read_with(false, &format!("{failed}, {skipped}")).unwrap();
        assert_eq!(report.failing("a/b", "process"), Some(("failed", "wrong")));
        assert_eq!(report.failing("a/b", "guest"), Some(("skipped", "slow")));
        for others in ["", left_out, skipped] {
            let refused = read_with(false, others).err().unwrap();
            assert!(
                refused.text().contains("did not pass"),
                "{}",
                refused.text()
            );
        }
    }
}
