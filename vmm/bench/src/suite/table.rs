//! The report of `bench suite` as a table for people.

use std::fmt::Write as _;

use causeway_bench_medians::Quoted;
use causeway_bench_medians::figures::{count, dash, ratio, short, time, time_within};
use causeway_bench_suites::DataPath;
use causeway_run::table::aligned;

use super::cell::SuiteCell;
use super::report::SuiteReport;

/// Headings of the columns.
pub const COLUMNS: [&str; 15] = [
    "program",
    "by",
    "n",
    "time (95 %)",
    "alone",
    "/ native",
    "launches",
    "written",
    "exits",
    "per launch",
    "per MiB",
    "of the GPU",
    "data path",
    "forward",
    "trap",
];
/// Number of columns at the left that contain text.
const TEXTS: usize = 2;

/// What the columns say.
pub const LEGEND: &str = "times are those of whole programs (by process: of the command), from \
     start to end: the median in turn with its 95 % interval (of at least 6 runs), and the median \
     alone, beside no other way; the ratio is the less favourable of both; launches include \
     replays of graphs; written is what the GPU's copies and fills wrote; exits are all that \
     reached the VMM during the program's life, the console's among them, also divided by \
     launches and by MiB written, and those of the GPU's registers; data path is exits of \
     operations in parts that the program marks; forward and trap are exits that launches, fills \
     and control batches would take at least if calls were forwarded, or accesses trapped \
     (--exits); times in guests are without the start of the driver, which native ones include";

/// Returns the whole report as text for people.
pub fn render(report: &SuiteReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let origin = report.origin.line(report.causeway);
    let _ = writeln!(out, "{}\n{}\n{origin}\n", report.backend, report.host);
    if !report.cells.is_empty() {
        let rows = rows(&report.cells).map(|(_, texts)| texts);
        let table = aligned(COLUMNS, rows, TEXTS..COLUMNS.len());
        let _ = writeln!(out, "{}\n\n{LEGEND}\n", table.trim_fmt());
    }
    for missing in &report.missing {
        let _ = writeln!(out, "{missing}");
    }
    for (way, mean) in &report.means {
        let (ratio, programs) = (short(mean.ratio), mean.programs);
        let _ = writeln!(
            out,
            "{way} / native: {ratio}, the geometric mean of {programs} programs"
        );
    }
    let _ = writeln!(out, "{}", report.result);
    out
}

/// Returns for each cell the texts of its row, and whether it is the first of its program.
pub fn rows(cells: &[SuiteCell]) -> impl Iterator<Item = (bool, [String; COLUMNS.len()])> {
    let mut program = None;
    cells.iter().map(move |cell| {
        let begins = program.replace(&cell.workload) != Some(&cell.workload);
        (begins, texts(begins, cell))
    })
}

fn texts(begins: bool, cell: &SuiteCell) -> [String; COLUMNS.len()] {
    let work = cell.work.as_ref();
    let exits = cell.exits.as_ref();
    let quoted = |quoted: Quoted| format!("{} {}", ratio(quoted.ratio), quoted.measured);
    [
        if begins { &*cell.workload } else { "" }.to_owned(),
        cell.mechanism.to_owned(),
        cell.time.samples_ns.len().to_string(),
        time_within(cell.time.median_ns, cell.time.interval()),
        cell.alone
            .as_ref()
            .map_or_else(dash, |alone| time(alone.median_ns)),
        cell.quoted.map_or_else(dash, quoted),
        work.map_or_else(dash, |work| (work.launches + work.replays).to_string()),
        work.map_or_else(dash, |work| {
            format!("{}B", short(work.written_bytes as f64))
        }),
        exits.map_or_else(dash, |exits| count(exits.user_space_per_operation)),
        cell.exits_per_launch.map_or_else(dash, count),
        cell.exits_per_mib.map_or_else(dash, count),
        exits.map_or_else(dash, |exits| exits.of_gpu.to_string()),
        exits
            .and_then(|exits| exits.data_path)
            .map_or_else(dash, data_path),
        cell.elsewhere
            .map_or_else(dash, |it| count(it.forward.ceil())),
        cell.elsewhere.map_or_else(dash, |it| count(it.trap.ceil())),
    ]
}

fn data_path(marked: DataPath) -> String {
    format!("{} of {}", marked.exits, marked.operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::report::tests::report;

    #[test]
    fn a_row_has_the_figures_of_its_way_and_dashes_for_what_nobody_counts() {
        let report = report([10.0, 20.0, 10.0], [20.0, 30.0, 15.0], 0);
        let rows: Vec<_> = rows(&report.cells).map(|(_, texts)| texts).collect();
        assert_eq!(rows[0][5..], ["-"; 10]);
        assert_eq!(rows[1][0], "");
        assert_eq!(
            rows[1][2..],
            [
                "2",
                "25.0 ns",
                "15.0 ns",
                "1.75 in turn",
                "10",
                "2.10MB",
                "30",
                "3",
                "15",
                "0",
                "0 of 8",
                "-",
                "-"
            ]
        );
    }

    #[test]
    fn what_failed_is_named_with_its_reason() {
        let text = render(&report([10.0; 3], [20.0; 3], 9));
        assert!(
            text.contains(" by guest failed: exit status 9\n1 passed, 1 failed\n"),
            "{text}"
        );
    }
}
