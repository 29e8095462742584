//! Destination of a JSON report.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::escape::shown_path;
use crate::failure::{Code, Failure};
use crate::output;
use crate::output_file::OutputFile;
use crate::report_keeper::ReportKeeper;

/// Where a command writes its JSON report, as the argument `--json` says.
#[derive(Debug)]
pub enum ReportFile {
    /// Nowhere: the command prints only its table.
    None,
    /// To standard output, in place of the table.
    Output,
    /// To a file.
    File {
        /// Path of the file as the user gave it, for messages.
        path: PathBuf,
        /// The file as a destination that was checked.
        file: OutputFile,
    },
    /// To a file that another process writes.
    Kept {
        /// Path of the file as the user gave it, for messages.
        path: PathBuf,
        /// The process.
        keeper: ReportKeeper,
    },
}

impl ReportFile {
    /// Checks that `path`, the value of `--json`, can be written to, and returns it as a
    /// destination. `-` stands for standard output; `None` means that no report is written. The
    /// check leaves no new file behind, and changes no existing file.
    ///
    /// # Errors
    /// A failure with [`Code::Report`] if `path` cannot be written to.
    pub fn prepare(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::None);
        };
        if path == Path::new("-") {
            return Ok(Self::Output);
        }
        let file = OutputFile::prepare(path).map_err(|e| {
            let message = format!(
                "cannot write the report {} (--json takes a file in a writable directory, or - for \
                 standard output)",
                shown_path(path)
            );
            Failure::new(Code::Report, message, e)
        })?;
        let path = path.to_owned();
        Ok(Self::File { path, file })
    }

    /// Returns a destination to which this process can write when it may write no file any more:
    /// another process writes it then.
    ///
    /// # Errors
    /// A failure with [`Code::Crashed`] if that process cannot be started.
    pub fn kept(self) -> Result<Self, Failure> {
        match self {
            Self::File {
                path,
                file: OutputFile::File { target, .. },
            } => {
                // Not the path: in that process, it may lead elsewhere, as /dev/stdout does.
                let keeper = ReportKeeper::start(&target).map_err(|e| {
                    let message = "cannot start the process that writes the report";
                    Failure::new(Code::Crashed, message, e)
                })?;
                Ok(Self::Kept { path, keeper })
            }
            other => Ok(other),
        }
    }

    /// Returns whether the report goes to standard output. The caller then must not print its table
    /// there.
    pub fn is_output(&self) -> bool {
        matches!(self, Self::Output)
    }

    /// Writes `report` to the destination as JSON, if `--json` was given.
    ///
    /// # Errors
    /// A failure with [`Code::Report`] if the report cannot be written.
    pub fn write(self, report: &impl Serialize) -> Result<(), Failure> {
        let failed = |path: &Path, e| {
            let message = format!("cannot write the report {}", shown_path(path));
            Failure::new(Code::Report, message, e)
        };
        match self {
            Self::None => Ok(()),
            Self::Output => output::print_results(&String::from_utf8_lossy(&json(report)?)),
            Self::File { path, file } => file
                .write(|out| write_json(out, report))
                .map_err(|e| failed(&path, e)),
            Self::Kept { path, keeper } => {
                keeper.write(&json(report)?).map_err(|e| failed(&path, e))
            }
        }
    }
}

fn json(report: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    write_json(&mut text, report)
        .map_err(|e| Failure::new(Code::Report, "cannot encode the report as JSON", e))?;
    Ok(text)
}

fn write_json(mut out: impl Write, report: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, report)?;
    out.write_all(b"\n")
}
