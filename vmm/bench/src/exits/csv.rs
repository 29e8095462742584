//! The cells as comma-separated values, for spreadsheets and plots.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::cells::CellReport;
use super::omission::{EVERYTHING, Omission};
use super::report::ExitsReport;

/// Names of the columns. They are only ever added to, at the end.
const COLUMNS: [&str; 27] = [
    "workload",
    "size",
    "unit",
    "mechanism",
    "operations",
    "median_ns",
    "p99_ns",
    "over_native",
    "over_native_low",
    "over_native_high",
    "exits_per_operation",
    "exits_per_operation_by_kvm",
    "doorbells_per_operation",
    "interrupts_per_operation",
    "faults_per_operation",
    "cpu_ns_per_operation",
    "low_ns",
    "high_ns",
    "slowest_ns",
    "least_ns",
    "samples",
    "unsteady",
    "counted_operations",
    "mmio_per_operation",
    "kvm_exits",
    "vmm_exits",
    "missing",
];

/// Writes a line for each cell of the report, then one for each omission.
pub fn write(out: &mut dyn Write, report: &ExitsReport) -> io::Result<()> {
    writeln!(out, "{}", COLUMNS.join(","))?;
    for cell in &report.cells {
        line(out, &fields(cell))?;
    }
    for missing in &report.missing {
        line(out, &fields_of_missing(missing))?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, fields: &[String; COLUMNS.len()]) -> io::Result<()> {
    let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
    writeln!(out, "{}", fields.join(","))
}

/// Returns a field in the format of RFC 4180, quoted if necessary.
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

fn fields(cell: &CellReport) -> [String; COLUMNS.len()] {
    let (time, ratio, exits) = (&cell.time, cell.over_native, cell.exits.as_ref());
    [
        cell.workload.to_owned(),
        cell.size.to_string(),
        cell.unit.to_owned(),
        cell.mechanism.to_owned(),
        cell.operations.to_string(),
        time.median_ns.to_string(),
        time.p99_ns.to_string(),
        number(ratio.map(|ratio| ratio.median)),
        number(ratio.and_then(|ratio| ratio.low)),
        number(ratio.and_then(|ratio| ratio.high)),
        number(exits.map(|exits| exits.user_space_per_operation)),
        number(exits.and_then(|exits| exits.user_space_per_operation_by_kvm)),
        number(exits.map(|exits| exits.doorbells_per_operation)),
        number(exits.and_then(|exits| exits.interrupts_per_operation)),
        number(exits.and_then(|exits| exits.faults_per_operation)),
        number(cell.cpu_ns),
        number(time.low_ns),
        number(time.high_ns),
        time.slowest_ns.to_string(),
        time.least_ns.to_string(),
        cell.samples.to_string(),
        cell.unsteady.to_string(),
        exits.map_or_else(String::new, |exits| exits.operations.to_string()),
        number(exits.map(|exits| exits.mmio_per_operation)),
        exits.map_or_else(String::new, |exits| reasons(&exits.kvm)),
        exits.map_or_else(String::new, |exits| reasons(&exits.vmm)),
        String::new(),
    ]
}

fn fields_of_missing(missing: &Omission) -> [String; COLUMNS.len()] {
    let mut fields = [const { String::new() }; COLUMNS.len()];
    missing
        .workload
        .unwrap_or(EVERYTHING)
        .clone_into(&mut fields[0]);
    fields[1] = missing.size.map_or_else(String::new, |n| n.to_string());
    missing.unit.clone_into(&mut fields[2]);
    missing.mechanism.clone_into(&mut fields[3]);
    missing.reason.clone_into(&mut fields[COLUMNS.len() - 1]);
    fields
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
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
    }

    #[test]
    fn what_is_missing_has_rows_with_reasons() {
        let lines = lines(&empty().absent("no such \"GPU\""));
        assert_eq!(lines.len(), 1 + 2);
        assert_eq!(lines[1].len(), COLUMNS.len());
        assert_eq!(lines[1][..4], ["everything", "", "", "trap"]);
        assert_eq!(lines[1][COLUMNS.len() - 1], "\"no such \"\"GPU\"\"\"");
        assert_eq!(quoted("a,b"), "\"a,b\"");
    }
}
