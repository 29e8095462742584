//! The report of `bench exits` as a table for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::cells::{CellReport, ExitReport};
use super::report::ExitsReport;
use crate::bench::statistics::Ratio;

/// Heads of the columns.
pub const COLUMNS: [&str; 11] = [
    "workload",
    "size",
    "mechanism",
    "time",
    "p99",
    "/ native",
    "exits",
    "by KVM",
    "interrupts",
    "faults",
    "CPU time",
];

/// The whole report as text.
pub fn render(report: &ExitsReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}\n{}\n",
        report.backend,
        crate::table::host(&report.host)
    );
    for device in &report.devices {
        let _ = writeln!(out, "{}\n", crate::table::passed_through(device));
    }
    let _ = writeln!(out, "{}\n", cells(&report.cells).trim_fmt());
    for missing in &report.missing {
        let _ = writeln!(
            out,
            "not measured: {} by {}: {}",
            missing.what, missing.mechanism, missing.reason
        );
    }
    let _ = writeln!(
        out,
        "\ntimes are medians and 99th percentiles of one operation, {} samples each, taken in turn; \
         the ratio is the median over those of the host in the same turn, on memory of the same kind, with its 95 % interval; \
         exits are those of one operation to the VMM, by its own count and KVM's; interrupts of the host and faults of \
         first touches are apart",
        report.repetitions
    );
    for cell in report.disagreements() {
        let _ = writeln!(
            out,
            "KVM and the VMM disagree about the exits of {} {} by {}",
            cell.workload, cell.size, cell.mechanism
        );
    }
    let _ = writeln!(out, "guest: {}", report.result);
    out
}

fn cells(cells: &[CellReport]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(COLUMNS);
    for (_, _, texts) in rows(cells) {
        table.add_row(texts);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The texts of each cell, and whether a new workload or size begins with it: only then they are named.
pub fn rows(
    cells: &[CellReport],
) -> impl Iterator<Item = (bool, &CellReport, [String; COLUMNS.len()])> {
    let mut row = None;
    cells.iter().map(move |cell| {
        let begins = row.replace((cell.workload, cell.size)) != Some((cell.workload, cell.size));
        (begins, cell, texts(begins, cell))
    })
}

fn texts(begins: bool, cell: &CellReport) -> [String; COLUMNS.len()] {
    let shown = |text: String| if begins { text } else { String::new() };
    let exits = cell.exits.as_ref();
    let each = |get: fn(&ExitReport) -> f64| exits.map_or_else(dash, |exits| count(get(exits)));
    [
        shown(cell.workload.to_owned()),
        shown(size(cell)),
        cell.mechanism.to_owned(),
        time(cell.time.median_ns),
        time(cell.time.p99_ns),
        cell.over_native.map_or_else(dash, ratio),
        each(|exits| exits.user_space_per_operation),
        each(|exits| exits.user_space_per_operation_by_kvm),
        each(|exits| exits.interrupts_per_operation),
        each(|exits| exits.faults_per_operation),
        time(cell.cpu_ns),
    ]
}

fn dash() -> String {
    String::from("-")
}

fn ratio(ratio: Ratio) -> String {
    format!("{:.3} ({:.3}-{:.3})", ratio.median, ratio.low, ratio.high)
}

/// Exits of one operation: none must look like none.
pub fn count(exits: f64) -> String {
    match exits {
        n if n.fract() == 0.0 => format!("{n:.0}"),
        n if n < 0.01 => format!("{n:.1e}"),
        n if n < 100.0 => format!("{n:.2}"),
        n => format!("{n:.0}"),
    }
}

fn size(cell: &CellReport) -> String {
    match (cell.size, cell.unit) {
        (_, "") if cell.size == 1 => String::new(),
        (n, "B") => bytes(n),
        (n, unit) => format!("{n} {unit}"),
    }
}

/// Bytes in the largest unit that they have one of.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        n if n >= 1 << 20 => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// A time in its unit.
pub fn time(ns: f64) -> String {
    match ns {
        n if n < 1e3 => format!("{n:.2} ns"),
        n if n < 1e6 => format!("{:.2} µs", n / 1e3),
        n => format!("{:.2} ms", n / 1e6),
    }
}
