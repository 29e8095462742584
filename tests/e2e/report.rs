//! Runs that write a JSON report.

use crate::command::{Outcome, Scratch};
use crate::schema;

pub use crate::parsed_report::Report;

/// Runs with `--json` and parses the report, whose schema is checked.
pub fn run(scratch: &Scratch, words: &[&str]) -> (Outcome, Report) {
    let outcome = scratch.run(&self::words(words));
    let report = read(scratch, &outcome);
    (outcome, report)
}

/// The words of a `run` that writes a report.
pub fn words<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["run", "--json", "report.json"];
    if !words.contains(&"--timeout") {
        // Before the test itself gives up, so that the command says what it was waiting for.
        all.extend(["--timeout", "120"]);
    }
    all.extend(words);
    all
}

/// Parses the report of a run, and checks its schema.
pub fn read(scratch: &Scratch, outcome: &Outcome) -> Report {
    let text = std::fs::read_to_string(scratch.path("report.json"));
    let text = text.unwrap_or_else(|error| panic!("no report: {error}: {outcome:?}"));
    let report = Report::parse(&text);
    schema::assert_valid(&report.0);
    report
}
