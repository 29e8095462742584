//! The cells as comma-separated values, for spreadsheets and plots.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::cells::CellReport;
use super::counts::ExitReport;
use super::omission::{EVERYTHING, Omission};
use super::report::ExitsReport;
use causeway_bench_medians::SingleTimes;

/// Name of a column, and the function that returns the column's text for a cell.
type Column = (&'static str, fn(&CellReport) -> String);

/// All columns. New ones are added at the end only, because programs may read columns by number.
const COLUMNS: [Column; 37] = [
    ("workload", |cell| cell.workload.to_owned()),
    ("size", |cell| cell.size.to_string()),
    ("unit", |cell| cell.unit.to_owned()),
    ("mechanism", |cell| cell.mechanism.to_owned()),
    ("operations", |cell| cell.operations.to_string()),
    ("median_ns", |cell| cell.time.median_ns.to_string()),
    ("p99_ns", |cell| cell.time.p99_ns.to_string()),
    ("over_native", |cell| {
        text(cell.over_native.map(|ratio| ratio.median))
    }),
    ("over_native_low", |cell| {
        text(cell.over_native.and_then(|ratio| ratio.low))
    }),
    ("over_native_high", |cell| {
        text(cell.over_native.and_then(|ratio| ratio.high))
    }),
    ("exits_per_operation", |cell| {
        each(cell, |exits| Some(exits.user_space_per_operation))
    }),
    ("exits_per_operation_by_kvm", |cell| {
        each(cell, |exits| exits.user_space_per_operation_by_kvm)
    }),
    ("doorbells_per_operation", |cell| {
        each(cell, |exits| Some(exits.doorbells_per_operation))
    }),
    ("interrupts_per_operation", |cell| {
        each(cell, |exits| exits.interrupts_per_operation)
    }),
    ("faults_per_operation", |cell| {
        each(cell, |exits| exits.faults_per_operation)
    }),
    ("cpu_ns_per_operation", |cell| text(cell.cpu_ns)),
    ("low_ns", |cell| text(cell.time.low_ns)),
    ("high_ns", |cell| text(cell.time.high_ns)),
    ("slowest_ns", |cell| cell.time.slowest_ns.to_string()),
    ("least_ns", |cell| cell.time.least_ns.to_string()),
    ("samples", |cell| cell.samples.to_string()),
    ("unsteady", |cell| cell.unsteady.to_string()),
    ("counted_operations", |cell| {
        each(cell, |exits| Some(exits.operations))
    }),
    ("mmio_per_operation", |cell| {
        each(cell, |exits| Some(exits.mmio_per_operation))
    }),
    ("kvm_exits", |cell| {
        each(cell, |exits| Some(reasons(&exits.kvm)))
    }),
    ("vmm_exits", |cell| {
        each(cell, |exits| Some(reasons(&exits.vmm)))
    }),
    (MISSING, |_| String::new()),
    ("single_operations", |cell| {
        single(cell, |times| Some(times.operations as f64))
    }),
    ("single_median_ns", |cell| {
        single(cell, |times| Some(times.median_ns))
    }),
    ("single_p99_ns", |cell| {
        single(cell, |times| Some(times.p99_ns))
    }),
    ("single_slowest_ns", |cell| {
        single(cell, |times| Some(times.slowest_ns))
    }),
    ("single_timer_ns", |cell| {
        single(cell, |times| times.timer_ns)
    }),
    ("single_missing", |cell| text(cell.single.reason())),
    ("alone_median_ns", |cell| {
        text(cell.alone.as_ref().map(|alone| alone.time.median_ns))
    }),
    ("alone_over_native", |cell| {
        let ratio = cell.alone.as_ref().and_then(|alone| alone.over_native);
        text(ratio.map(|ratio| ratio.median))
    }),
    ("quoted_over_native", |cell| {
        text(cell.quoted.map(|quoted| quoted.ratio.median))
    }),
    ("quoted_measured", |cell| {
        text(cell.quoted.map(|quoted| quoted.measured))
    }),
];
/// Name of the column with the reason of an omission.
const MISSING: &str = "missing";

/// Writes a line for each cell of the report, then one for each omission.
///
/// # Errors
/// The error of `out`.
pub fn write(out: &mut dyn Write, report: &ExitsReport) -> io::Result<()> {
    line(out, COLUMNS.map(|(name, _)| name.to_owned()))?;
    for cell in &report.cells {
        line(out, COLUMNS.map(|(_, value)| value(cell)))?;
    }
    for missing in &report.missing {
        line(out, fields_of_missing(missing))?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, fields: [String; COLUMNS.len()]) -> io::Result<()> {
    writeln!(out, "{}", fields.map(|field| quoted(&field)).join(","))
}

/// Returns a field in the format of RFC 4180, quoted if necessary.
pub fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

fn fields_of_missing(missing: &Omission) -> [String; COLUMNS.len()] {
    let mut fields = [const { String::new() }; COLUMNS.len()];
    missing
        .workload
        .unwrap_or(EVERYTHING)
        .clone_into(&mut fields[0]);
    fields[1] = text(missing.size);
    missing.unit.clone_into(&mut fields[2]);
    missing.mechanism.clone_into(&mut fields[3]);
    let mut columns = COLUMNS.iter().zip(&mut fields);
    if let Some((_, field)) = columns.find(|((name, _), _)| *name == MISSING) {
        missing.reason.clone_into(field);
    }
    fields
}

/// Returns a value as text, or an empty text without a value.
fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Returns a value of the cell's exits as text, or an empty text if they were not counted.
fn each<T: ToString>(cell: &CellReport, get: impl FnOnce(&ExitReport) -> Option<T>) -> String {
    text(cell.exits.as_ref().and_then(get))
}

/// Returns a figure of the cell's single operations as text, or an empty text if they were not
/// timed.
fn single(cell: &CellReport, get: impl FnOnce(&SingleTimes) -> Option<f64>) -> String {
    text(cell.single.timed().and_then(get))
}

/// Returns counts by name as text: `mmio_exits=5;irq_exits=1`.
fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let counts = counts.iter().map(|(name, n)| format!("{name}={n}"));
    counts.collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exits::cells::tests::{cell, phase, taken};
    use crate::exits::counts::KvmCounts;
    use crate::exits::report::tests::empty;
    use causeway_bench_workloads::MechanismKind;

    fn lines(report: &ExitsReport) -> Vec<Vec<String>> {
        let mut text = Vec::new();
        write(&mut text, report).unwrap();
        let text = String::from_utf8(text).unwrap();
        let split = |line: &str| line.split(',').map(ToOwned::to_owned).collect();
        text.lines().map(split).collect()
    }

    #[test]
    fn cells_have_their_exits_by_reason() {
        let kind = MechanismKind::Trap;
        let phases = [phase(kind, 5, 5)];
        let samples = [taken(kind, 0, 30)];
        let counts = KvmCounts::Emulations;
        let trap = CellReport::of(&cell(kind), &samples, &[&phases[0]], counts).unwrap();
        let all = 5 * trap.operations;
        let mut report = empty();
        report.cells.push(trap);
        let lines = lines(&report);
        let field = |name: &str| {
            let place = lines[0].iter().position(|column| column == name).unwrap();
            lines[1][place].clone()
        };
        assert_eq!(
            field("kvm_exits"),
            format!("insn_emulation={all};mmio_exits={all}")
        );
        assert_eq!(field("vmm_exits"), format!("mmio:trap:kick={all}"));
        assert_eq!((field("samples"), field("low_ns")), ("1".into(), "".into()));
        assert_eq!(field("unsteady"), "false");
        assert_eq!(field("missing"), "");
        assert_eq!(field("single_p99_ns"), "");
        assert_eq!(field("single_missing"), "not reached");
    }

    #[test]
    fn what_is_missing_has_rows_with_reasons() {
        let lines = lines(&empty().absent("no such \"GPU\""));
        assert_eq!(lines.len(), 1 + 2);
        assert_eq!(lines[1].len(), COLUMNS.len());
        assert_eq!(lines[1][..4], ["everything", "", "", "trap"]);
        let missing = lines[0].iter().position(|column| column == MISSING);
        assert_eq!(missing, Some(26), "columns keep their numbers");
        assert_eq!(lines[1][26], "\"no such \"\"GPU\"\"\"");
        assert_eq!(quoted("a,b"), "\"a,b\"");
    }
}
