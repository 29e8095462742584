//! The report of `bench suite` as comma-separated values.

use std::io::{self, Write};

use super::cell::SuiteCell;
use super::report::SuiteReport;
use crate::exits::csv::quoted;
use causeway_bench_suites::{DataPath, Exits, Work};

/// Name of a column, and the function that returns the column's text for a cell.
type Column = (&'static str, fn(&SuiteCell) -> String);

/// All columns. New ones are added at the end only, because programs may read columns
/// by number.
const COLUMNS: [Column; 23] = [
    ("program", |cell| cell.workload.clone()),
    ("by", |cell| cell.mechanism.to_owned()),
    ("outcome", |_| String::from("passed")),
    ("reason", |_| String::new()),
    ("samples", |cell| cell.time.samples_ns.len().to_string()),
    ("median_ns", |cell| cell.time.median_ns.to_string()),
    ("low_ns", |cell| text(cell.time.low_ns)),
    ("high_ns", |cell| text(cell.time.high_ns)),
    ("alone_median_ns", |cell| {
        text(cell.alone.as_ref().map(|alone| alone.median_ns))
    }),
    ("over_native", |cell| {
        text(cell.over_native.map(|ratio| ratio.median))
    }),
    ("alone_over_native", |cell| {
        text(cell.alone_over_native.map(|ratio| ratio.median))
    }),
    ("launches", |cell| work(cell, |work| work.launches)),
    ("replays", |cell| work(cell, |work| work.replays)),
    ("written_bytes", |cell| {
        work(cell, |work| work.written_bytes)
    }),
    ("batches", |cell| work(cell, |work| work.batches)),
    ("exits", |cell| {
        exits(cell, |exits| exits.user_space_per_operation)
    }),
    ("exits_of_gpu", |cell| {
        exits(cell, |exits| exits.of_gpu as f64)
    }),
    ("exits_per_launch", |cell| text(cell.exits_per_launch)),
    ("exits_per_mib", |cell| text(cell.exits_per_mib)),
    ("exits_by_forward", |cell| {
        text(cell.elsewhere.map(|it| it.forward))
    }),
    ("exits_by_trap", |cell| {
        text(cell.elsewhere.map(|it| it.trap))
    }),
    ("data_path_operations", |cell| {
        data_path(cell, |marked| marked.operations)
    }),
    ("data_path_exits", |cell| {
        data_path(cell, |marked| marked.exits)
    }),
];

/// Writes a line for each program and way, then one for each that did not pass.
///
/// # Errors
/// The error of `out`.
pub fn write(out: &mut dyn Write, report: &SuiteReport) -> io::Result<()> {
    line(out, COLUMNS.map(|(name, _)| name.to_owned()))?;
    for cell in &report.cells {
        line(out, COLUMNS.map(|(_, value)| value(cell)))?;
    }
    for missing in &report.missing {
        let mut fields = [const { String::new() }; COLUMNS.len()];
        fields[0].clone_from(&missing.workload);
        fields[1] = text(missing.mechanism);
        fields[2] = missing.outcome.text().to_owned();
        fields[3].clone_from(&missing.reason);
        line(out, fields)?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, fields: [String; COLUMNS.len()]) -> io::Result<()> {
    writeln!(out, "{}", fields.map(|field| quoted(&field)).join(","))
}

/// Returns a value as text, or an empty text without a value.
fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn work(cell: &SuiteCell, get: fn(&Work) -> u64) -> String {
    text(cell.work.as_ref().map(get))
}

fn exits(cell: &SuiteCell, get: fn(&Exits) -> f64) -> String {
    text(cell.exits.as_ref().map(get))
}

fn data_path(cell: &SuiteCell, get: fn(DataPath) -> u64) -> String {
    let marked = cell.exits.as_ref().and_then(|exits| exits.data_path);
    text(marked.map(get))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::report::tests::report;

    #[test]
    fn each_way_has_a_line_and_each_failure_its_reason() {
        let mut text = Vec::new();
        write(&mut text, &report([10.0; 3], [20.0; 3], 9)).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].contains(",native,passed,,2,10,,,10,"), "{text}");
        assert!(lines[2].contains(",guest,failed,exit status 9,"), "{text}");
        let columns = |line: &str| line.split(',').count();
        assert_eq!(columns(lines[0]), columns(lines[1]));
    }
}
