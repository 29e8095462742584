//! The cells as comma-separated values, for spreadsheets and plots.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::cells::CellReport;
use super::report::ExitsReport;
use crate::failure::{Code, Failure};
use crate::output_file::OutputFile;

/// Names of the columns. They are only ever added to, at the end.
const COLUMNS: &str = "workload,size,unit,mechanism,operations,median_ns,p99_ns,over_native,over_native_low,\
over_native_high,exits_per_operation,exits_per_operation_by_kvm,doorbells_per_operation,interrupts_per_operation,\
faults_per_operation,cpu_ns_per_operation";

/// Where they go, if anywhere.
pub struct CsvFile(Option<(PathBuf, OutputFile)>);

impl CsvFile {
    /// Prepares the place, and finds out whether it can be written to.
    pub fn prepare(path: Option<&Path>) -> Result<Self, Failure> {
        let prepare = |path: &Path| {
            let file = OutputFile::prepare(path).map_err(|e| {
                let message = format!(
                    "cannot write {} (--csv takes a file in a directory that exists and may be written to)",
                    path.display()
                );
                Failure::new(Code::Report, message, e)
            })?;
            Ok((path.to_owned(), file))
        };
        path.map(prepare).transpose().map(Self)
    }

    /// Writes them.
    pub fn write(self, report: &ExitsReport) -> Result<(), Failure> {
        let Some((path, file)) = self.0 else {
            return Ok(());
        };
        let written = file.write(|out| lines(out, &report.cells));
        written.map_err(|e| {
            let message = format!("cannot write {}", path.display());
            Failure::new(Code::Report, message, e)
        })
    }
}

fn lines(mut out: impl Write, cells: &[CellReport]) -> io::Result<()> {
    writeln!(out, "{COLUMNS}")?;
    for cell in cells {
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
        writeln!(out)?;
    }
    Ok(())
}
