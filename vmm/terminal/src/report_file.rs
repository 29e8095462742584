//! Where a JSON report goes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::{Code, Failure};
use crate::output;
use crate::output_file::OutputFile;

/// Where a JSON report goes.
#[derive(Debug)]
pub enum ReportFile {
    /// Nowhere: the table is all there is.
    None,
    /// Standard output, in place of the table.
    Output,
    /// A file.
    File {
        /// As it was named.
        path: PathBuf,
        /// Where it is written to.
        file: OutputFile,
    },
}

impl ReportFile {
    /// Prepares the place, and finds out whether it can be written to. Leaves nothing there.
    pub fn prepare(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::None);
        };
        if path == Path::new("-") {
            return Ok(Self::Output);
        }
        let file = OutputFile::prepare(path).map_err(|e| {
            let message = format!(
                "cannot write the report {} (--json takes a file in a writable directory, or - for standard output)",
                path.display()
            );
            Failure::new(Code::Report, message, e)
        })?;
        let path = path.to_owned();
        Ok(Self::File { path, file })
    }

    /// Whether the report takes the place of the table.
    pub fn is_output(&self) -> bool {
        matches!(self, Self::Output)
    }

    /// Writes the report.
    pub fn write(self, report: &impl Serialize) -> Result<(), Failure> {
        match self {
            Self::None => Ok(()),
            Self::Output => {
                let mut text = Vec::new();
                write_json(&mut text, report)
                    .map_err(|e| Failure::new(Code::Report, "cannot encode the report as JSON", e))
                    .and_then(|()| output::print_results(&String::from_utf8_lossy(&text)))
            }
            Self::File { path, file } => file.write(|out| write_json(out, report)).map_err(|e| {
                let message = format!("cannot write the report {}", path.display());
                Failure::new(Code::Report, message, e)
            }),
        }
    }
}

fn write_json(mut out: impl Write, report: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, report)?;
    out.write_all(b"\n")
}
