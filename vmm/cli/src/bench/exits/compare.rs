//! `--compare`: what differs between two reports by more than noise.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::report::SCHEMA;
use crate::bench::statistics::interval_of;
use crate::failure::{Code, Failure};

/// Medians that are closer than this, relative to the first, are never told apart: two runs of one program differ by as
/// much, for where its code and memory happen to lie.
const CLOSE: f64 = 0.1;

/// What is read of a report.
#[derive(Deserialize)]
struct Report {
    schema: String,
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    workload: String,
    size: u64,
    mechanism: String,
    time: Time,
    exits: Option<Exits>,
}

#[derive(Deserialize)]
struct Time {
    median_ns: f64,
    samples_ns: Vec<f64>,
}

#[derive(Deserialize)]
struct Exits {
    user_space_per_operation: f64,
}

/// Reads both and says what differs.
pub fn run(before: &Path, after: &Path) -> Result<String, Failure> {
    let (before, after) = (read(before)?, read(after)?);
    Ok(compare(&before, &after))
}

fn read(path: &Path) -> Result<Report, Failure> {
    let name = path.display();
    let text = fs::read(path)
        .map_err(|e| Failure::new(Code::Usage, format!("--compare cannot read {name}"), e))?;
    let report: Report = serde_json::from_slice(&text).map_err(|e| {
        let message = format!("{name} is no report of `bench exits --json`");
        Failure::new(Code::Usage, message, e)
    })?;
    if report.schema != SCHEMA {
        return Err(Failure::usage(format!(
            "{name} has the schema {}, and {SCHEMA} is what can be compared",
            report.schema.escape_debug()
        )));
    }
    Ok(report)
}

fn compare(before: &Report, after: &Report) -> String {
    let key = |cell: &'_ Cell| (cell.workload.clone(), cell.size, cell.mechanism.clone());
    let later: BTreeMap<_, &Cell> = after.cells.iter().map(|cell| (key(cell), cell)).collect();
    let mut out = String::new();
    let (mut both, mut changes) = (0, 0);
    for cell in &before.cells {
        let Some(other) = later.get(&key(cell)) else {
            continue;
        };
        both += 1;
        for change in [time(cell, other), exits(cell, other)]
            .into_iter()
            .flatten()
        {
            changes += 1;
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{} {} by {}: {change}",
                printable(&cell.workload),
                cell.size,
                printable(&cell.mechanism)
            );
        }
    }
    let apart = before.cells.len() + after.cells.len() - 2 * both;
    let _ = writeln!(
        out,
        "{both} cells compared, {changes} changes beyond noise{}",
        match apart {
            0 => String::new(),
            n => format!("; {n} cells are in one report only"),
        }
    );
    out
}

/// Times differ if the intervals that their medians lie in are apart, by more than what two runs always differ by.
fn time(before: &Cell, after: &Cell) -> Option<String> {
    let (low, high) = interval_of(&before.time.samples_ns)?;
    let (other_low, other_high) = interval_of(&after.time.samples_ns)?;
    let gap = (other_low - high).max(low - other_high);
    let median = before.time.median_ns;
    let change = after.time.median_ns / median;
    (gap > CLOSE * median && change.is_finite()).then(|| {
        format!(
            "time {:.1} → {:.1} ns ({:+.0} %)",
            median,
            after.time.median_ns,
            100.0 * (change - 1.0)
        )
    })
}

/// Exits are counted, not measured: but how often a guest asks whether something is done is up to time.
fn exits(before: &Cell, after: &Cell) -> Option<String> {
    let count = |cell: &Cell| Some(cell.exits.as_ref()?.user_space_per_operation);
    let (before, after) = (count(before)?, count(after)?);
    let differs = (before == 0.0) != (after == 0.0) || (after - before).abs() > CLOSE * before;
    differs.then(|| format!("exits {before:.4} → {after:.4} per operation"))
}

/// Reports come from anywhere.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(samples: &[f64], exits: f64) -> Report {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Report {
            schema: SCHEMA.to_owned(),
            cells: vec![Cell {
                workload: "copy-in".to_owned(),
                size: 64,
                mechanism: "trap".to_owned(),
                time: Time {
                    median_ns: sorted[sorted.len() / 2],
                    samples_ns: samples.to_vec(),
                },
                exits: Some(Exits {
                    user_space_per_operation: exits,
                }),
            }],
        }
    }

    #[test]
    fn what_overlaps_or_lies_close_is_noise() {
        let before = report(&[100.0, 104.0, 110.0, 103.0, 101.0], 8.0);
        for samples in [[109.0, 130.0, 150.0, 140.0, 135.0], [111.0; 5], [92.0; 5]] {
            let text = compare(&before, &report(&samples, 8.0));
            assert_eq!(text, "1 cells compared, 0 changes beyond noise\n");
        }
    }

    #[test]
    fn what_lies_apart_is_named_with_both_values() {
        let before = report(&[100.0, 104.0, 110.0, 103.0, 101.0], 8.0);
        let text = compare(&before, &report(&[206.0; 5], 0.0));
        assert!(
            text.contains("copy-in 64 by trap: time 103.0 → 206.0 ns (+100 %)"),
            "{text}"
        );
        assert!(text.contains("exits 8.0000 → 0.0000"), "{text}");
        assert!(text.ends_with("2 changes beyond noise\n"), "{text}");
    }

    #[test]
    fn cells_of_one_report_only_are_counted() {
        let before = report(&[1.0; 5], 1.0);
        let mut after = report(&[1.0; 5], 1.0);
        after.cells[0].size = 128;
        let text = compare(&before, &after);
        assert!(text.starts_with("0 cells compared"), "{text}");
        assert!(text.contains("2 cells are in one report only"), "{text}");
    }
}
