//! The report of `bench gpu` as a table for people.

use std::fmt::Write as _;

use causeway_run::table::{self, aligned};
use comfy_table::Table;

use super::report::{BenchReport, LineReport};
use causeway_bench_medians::Distribution;
use causeway_bench_medians::figures::{dash, ratio, time};

const COLUMNS: [&str; 8] = [
    "line",
    "size",
    "guest",
    "p99",
    "native",
    "p99",
    "guest / native",
    "exits per op",
];

/// Returns the whole report of `bench gpu` as text for people.
pub fn render(report: &BenchReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{} ({} compute units, {} MiB)\n{}\n{}\n",
        report.device.name,
        report.device.compute_units,
        report.device.memory_bytes >> 20,
        report.host,
        report.origin.line(report.causeway)
    );
    let _ = writeln!(out, "{}\n", lines(&report.lines).trim_fmt());
    for figure in &report.figures {
        let _ = writeln!(out, "{}: {} {}", figure.name, figure.value, figure.unit);
    }
    let _ = writeln!(
        out,
        "times are medians and 99th percentiles of one operation; guest and host took turns; \
         the ratio is the median of the ratios of neighbours, with its 95 % interval"
    );
    let _ = writeln!(out, "guest: {}", report.result);
    out
}

fn lines(lines: &[LineReport]) -> Table {
    let row = |line: &LineReport| {
        let native = line.native.as_ref();
        [
            line.line.to_owned(),
            size(line.bytes),
            time(line.guest.median_ns),
            time(line.guest.p99_ns),
            native.map_or_else(dash, |d: &Distribution| time(d.median_ns)),
            native.map_or_else(dash, |d| time(d.p99_ns)),
            line.guest_over_native.map_or_else(dash, ratio),
            format!("{:.3}", line.exits.user_space_per_operation),
        ]
    };
    aligned(COLUMNS, lines.iter().map(row), 1..COLUMNS.len())
}

fn size(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        n => table::size(n),
    }
}
