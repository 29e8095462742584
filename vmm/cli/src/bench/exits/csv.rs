//! The cells as comma-separated values, for spreadsheets and plots.

use std::io::{self, Write};

use super::cells::CellReport;
use super::report::ExitsReport;

/// Names of the columns. They are only ever added to, at the end.
const COLUMNS: &str = "workload,size,unit,mechanism,operations,median_ns,p99_ns,over_native,over_native_low,\
over_native_high,exits_per_operation,exits_per_operation_by_kvm,doorbells_per_operation,interrupts_per_operation,\
faults_per_operation,cpu_ns_per_operation";

/// Writes the cells of a report.
pub fn write(out: &mut dyn Write, report: &ExitsReport) -> io::Result<()> {
    writeln!(out, "{COLUMNS}")?;
    for cell in &report.cells {
        line(out, cell)?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, cell: &CellReport) -> io::Result<()> {
    let ratio = cell.over_native;
    let exits = cell.exits.as_ref();
    let numbers = [
        Some(cell.time.median_ns),
        Some(cell.time.p99_ns),
        ratio.map(|ratio| ratio.median),
        ratio.map(|ratio| ratio.low),
        ratio.map(|ratio| ratio.high),
        exits.map(|exits| exits.user_space_per_operation),
        exits.map(|exits| exits.user_space_per_operation_by_kvm),
        exits.map(|exits| exits.doorbells_per_operation),
        exits.map(|exits| exits.interrupts_per_operation),
        exits.map(|exits| exits.faults_per_operation),
        Some(cell.cpu_ns),
    ];
    write!(
        out,
        "{},{},{},{},{}",
        cell.workload, cell.size, cell.unit, cell.mechanism, cell.operations
    )?;
    for number in numbers {
        match number {
            Some(number) => write!(out, ",{number}")?,
            None => write!(out, ",")?,
        }
    }
    writeln!(out)
}
