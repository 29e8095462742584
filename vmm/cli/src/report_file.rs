//! The report's file: found unwritable before the run, replaced only by a complete report.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Code, Failure};
use crate::report::Report;

/// Where a JSON report goes.
pub enum ReportFile {
    /// Nowhere: the table is all there is.
    None,
    /// Standard output, in place of the table.
    Output,
    /// A file, through a temporary one beside it.
    File {
        /// Name of the report.
        path: PathBuf,
        /// Name of the temporary file.
        partial: PathBuf,
        /// The temporary file.
        file: File,
    },
}

impl ReportFile {
    /// Prepares the place.
    pub fn prepare(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::None);
        };
        if path == Path::new("-") {
            return Ok(Self::Output);
        }
        let fail = |e| {
            Failure::new(
                Code::Report,
                format!("cannot write the report {}", path.display()),
                e,
            )
        };
        if path.is_dir() {
            return Err(fail(std::io::ErrorKind::IsADirectory.into()));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let file = File::create_new(&partial).map_err(fail)?;
        Ok(Self::File {
            path: path.to_owned(),
            partial,
            file,
        })
    }

    /// Whether the report takes the place of the table.
    pub fn is_output(&self) -> bool {
        matches!(self, Self::Output)
    }

    /// Writes the report.
    pub fn write(self, report: &Report) -> Result<(), Failure> {
        match &self {
            Self::None => Ok(()),
            Self::Output => write_json(std::io::stdout().lock(), report).map_err(|e| {
                Failure::new(
                    Code::Report,
                    "cannot write the report to standard output",
                    e,
                )
            }),
            Self::File {
                path,
                partial,
                file,
            } => write_json(BufWriter::new(file), report)
                .and_then(|()| std::fs::rename(partial, path))
                .map_err(|e| {
                    Failure::new(
                        Code::Report,
                        format!("cannot write the report {}", path.display()),
                        e,
                    )
                }),
        }
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if let Self::File { partial, .. } = self {
            // Already renamed after a complete report.
            let _ = std::fs::remove_file(partial);
        }
    }
}

fn write_json(mut out: impl Write, report: &Report) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut out, report)?;
    out.write_all(b"\n")?;
    out.flush()
}
