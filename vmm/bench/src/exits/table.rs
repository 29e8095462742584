//! The report of `bench exits` as a table for people.

use std::fmt::Write as _;

use causeway_run::table::{self, aligned};
use comfy_table::Table;

use super::cells::CellReport;
use super::counts::ExitReport;
use super::report::ExitsReport;
use causeway_bench_medians::figures::{count, dash, ratio, time, time_within};
use causeway_bench_medians::{Quoted, Ratio, Singles, timers};

/// Headings of the columns.
pub const COLUMNS: [&str; 13] = [
    "workload",
    "size",
    "mechanism",
    "n",
    "time (95 %)",
    "p99",
    "/ native (95 %)",
    "exits",
    "by KVM",
    "doorbells",
    "irqs",
    "faults",
    "CPU time",
];
/// Number of columns at the left that contain text.
const TEXTS: usize = 3;
/// Mark of an unsteady time.
const UNSTEADY: &str = "~";

/// Returns the whole report of `bench exits` as text for people.
pub fn render(report: &ExitsReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let origin = report.origin.line(report.causeway);
    let _ = writeln!(out, "{}\n{}\n{origin}\n", report.backend, report.host);
    for device in &report.devices {
        let _ = writeln!(out, "{}\n", causeway_run::table::passed_through(device));
    }
    let _ = writeln!(out, "{}\n", cells(&report.cells).trim_fmt());
    if let Some(alone) = alone(&report.cells) {
        let _ = writeln!(out, "{}\n{ALONE}\n", alone.trim_fmt());
    }
    for missing in &report.missing {
        let _ = writeln!(
            out,
            "not measured: {} by {}: {}",
            missing.what, missing.mechanism, missing.reason
        );
    }
    let _ = writeln!(out, "\n{}", legend(&report.cells));
    if let Some(crowded) = crowded(report) {
        let _ = writeln!(out, "{crowded}");
    }
    if let Some(traced) = &report.tracepoints {
        let _ = writeln!(out, "{traced}");
    }
    for problem in &report.problems {
        let _ = writeln!(out, "failed: {}: {}", problem.phase, problem.what);
    }
    let _ = writeln!(out, "guest: {}", report.result);
    out
}

/// Returns a text that names the rows whose times include waits for a processor, if consumers often
/// had none.
pub fn crowded(report: &ExitsReport) -> Option<String> {
    let waits = report.crowded_waits?;
    Some(format!(
        "rows of `mediated`: the thread that executes the guest's packets found its processor \
         taken by other threads {waits} times (the guest's, or other load), and times include \
         that; the other mechanisms execute on the thread that asks, and share no processor"
    ))
}

/// Returns the text below the table that explains its columns.
pub fn legend(cells: &[CellReport]) -> String {
    let mut legend = String::from(
        "n samples of each cell are taken in turn; times are those of one operation: the median \
         with its 95 % interval (of at least 6 samples); p99 is the 99th percentile of operations \
         that a second pass times one by one, or why there is none; the ratio is the median over \
         the host's samples in the same turn, on memory of the same kind, with its 95 % interval; \
         exits are those of one operation to the VMM, by its own count and by \
         KVM's; doorbells are exits that the host's kernel takes; interrupts of the host (irqs) \
         and faults of first touches are apart; CPU time is the median of the process's",
    );
    if let Some(timers) = timers(cells.iter().map(|cell| &cell.single)) {
        let _ = write!(legend, "; {timers}");
    }
    let unsteady = cells.iter().filter(|cell| cell.unsteady).count();
    if unsteady != 0 {
        let _ = write!(
            legend,
            ". {UNSTEADY} marks times that are unsteady ({unsteady} cells): their intervals span \
             more than a factor of 2"
        );
    }
    legend
}

fn cells(cells: &[CellReport]) -> Table {
    let texts = rows(cells).map(|(_, _, texts)| texts);
    let mut table = aligned(COLUMNS, texts, TEXTS..COLUMNS.len());
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if place < TEXTS { 2 } else { 1 }));
    }
    table
}

/// Headings of the table of cells that were measured alone, too.
pub const ALONE_COLUMNS: [&str; 8] = [
    "workload",
    "size",
    "mechanism",
    "alone",
    "/ native alone",
    "in turn",
    "/ native in turn",
    "less favourable",
];
/// What the table of cells that were measured alone says.
pub const ALONE: &str = "alone: the process of the other side holds no context on the GPU, and the \
     ratio is that of the medians; in turn: all mechanisms are measured in turn; summaries quote \
     the less favourable ratio";

/// Returns the table of cells that were measured alone, or `None` if there are none.
fn alone(cells: &[CellReport]) -> Option<Table> {
    let rows: Vec<_> = alone_rows(cells).collect();
    let figures = TEXTS..ALONE_COLUMNS.len();
    (!rows.is_empty()).then(|| aligned(ALONE_COLUMNS, rows, figures))
}

/// Returns the texts of a row for each cell that was measured alone.
pub fn alone_rows(cells: &[CellReport]) -> impl Iterator<Item = [String; ALONE_COLUMNS.len()]> {
    let shown = |of: Option<Ratio>| of.map_or_else(dash, ratio);
    cells.iter().filter_map(move |cell| {
        let alone = cell.alone.as_ref()?;
        let quoted = |quoted: Quoted| format!("{} {}", ratio(quoted.ratio), quoted.measured);
        Some([
            cell.workload.to_owned(),
            size(cell),
            cell.mechanism.to_owned(),
            time(alone.time.median_ns),
            shown(alone.over_native),
            time(cell.time.median_ns),
            shown(cell.over_native),
            cell.quoted.map_or_else(dash, quoted),
        ])
    })
}

/// Returns for each cell the texts of its row in the table, and whether it is the first cell of its
/// workload and size. Other rows leave the columns for workload and size empty.
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
    let each = |get: fn(&ExitReport) -> Option<f64>| exits.and_then(get).map_or_else(dash, count);
    [
        shown(cell.workload.to_owned()),
        shown(size(cell)),
        cell.mechanism.to_owned(),
        cell.samples.to_string(),
        median(cell),
        p99(cell),
        cell.over_native.map_or_else(dash, ratio),
        each(|exits| Some(exits.user_space_per_operation)),
        each(|exits| exits.user_space_per_operation_by_kvm),
        each(|exits| Some(exits.doorbells_per_operation)),
        each(|exits| exits.interrupts_per_operation),
        each(|exits| exits.faults_per_operation),
        cell.cpu_ns.map_or_else(dash, time),
    ]
}

/// Returns the 99th percentile of single operations, or why there is none.
fn p99(cell: &CellReport) -> String {
    match &cell.single {
        Singles::Timed(times) => time(times.p99_ns),
        Singles::NotTimed { reason } => reason.to_string(),
    }
}

fn median(cell: &CellReport) -> String {
    let time = time_within(cell.time.median_ns, cell.time.interval());
    match cell.unsteady {
        true => format!("{UNSTEADY}{time}"),
        false => time,
    }
}

/// Returns the size of a cell with its unit, or an empty text if the workload has a single size.
pub fn size(cell: &CellReport) -> String {
    match (cell.size, cell.unit) {
        (_, "") if cell.size == 1 => String::new(),
        (n, "B") => table::size(n),
        (n, unit) => format!("{n} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exits::cells::tests::{cell, phase, taken};
    use crate::exits::counts::KvmCounts;
    use crate::exits::report::Problem;
    use crate::exits::report::tests::empty;
    use causeway_bench_workloads::MechanismKind;

    fn trapped(times: &[u64], counts: KvmCounts) -> CellReport {
        let kind = MechanismKind::Trap;
        let samples: Vec<_> = (0..)
            .zip(times)
            .map(|(r, ns)| taken(kind, r, *ns))
            .collect();
        let phases: Vec<_> = times.iter().map(|_| phase(kind, 5, 5)).collect();
        let phases: Vec<_> = phases.iter().collect();
        CellReport::of(&cell(kind), &samples, &phases, counts).unwrap()
    }

    #[test]
    fn unsteady_cells_are_marked_and_the_mark_is_explained() {
        let counts = KvmCounts::Emulations;
        let cells = [
            trapped(&[10, 11, 12, 13, 14, 15], counts),
            trapped(&[10, 11, 12, 13, 14, 21], counts),
        ];
        assert_eq!(texts(true, &cells[0])[4], "12.5 ns (10.0-15.0)");
        assert_eq!(texts(true, &cells[1])[4], "~12.5 ns (10.0-21.0)");
        assert!(!legend(&cells[..1]).contains('~'));
        assert!(legend(&cells).contains("~ marks times that are unsteady (1 cells)"));
    }

    #[test]
    fn a_kvm_that_counts_nothing_has_no_zeros() {
        let cell = trapped(&[10], KvmCounts::Nothing);
        let texts = texts(true, &cell);
        assert_eq!(texts[4], "10.0 ns", "no interval of one sample");
        assert_eq!(texts[7..12], ["5", "-", "0", "-", "-"]);
    }

    #[test]
    fn rows_whose_times_include_waits_for_a_processor_are_named() {
        let mut report = empty();
        assert!(!render(&report).contains("processor taken"));
        report.crowded_waits = Some(77);
        let text = render(&report);
        assert!(text.contains("\nrows of `mediated`: "), "{text}");
        assert!(text.contains(" 77 times "), "{text}");
    }

    #[test]
    fn problems_are_printed_with_their_phases() {
        let mut report = empty();
        report.problems.push(Problem {
            phase: String::from("load 65536 trap"),
            what: String::from("phase 2 of 3: KVM counted 1"),
        });
        let text = render(&report);
        assert!(text.contains("failed: load 65536 trap: phase 2 of 3: KVM counted 1\n"));
    }
}
