//! The report's file: found unwritable before the run, replaced only by a complete report.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::failure::{Code, Failure};
use crate::terminal;
use serde::Serialize;

/// Where a JSON report goes.
#[derive(Debug)]
pub enum ReportFile {
    /// Nowhere: the table is all there is.
    None,
    /// Standard output, in place of the table.
    Output,
    /// A file, through a temporary one beside it.
    File {
        /// As it was named.
        path: PathBuf,
        /// Itself, where the name is a link to it.
        target: PathBuf,
        /// Name of the temporary file, which exists only while the report is being written.
        partial: PathBuf,
    },
    /// Something that is no regular file, such as a pipe or a device: written to as it is, never replaced.
    Special {
        /// As it was named.
        path: PathBuf,
        /// Open for writing.
        file: File,
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
        Self::place(path).map_err(|e| {
            let message = format!(
                "cannot write the report {} (--json takes a file in a directory that exists and may be written to, or - for standard output)",
                path.display()
            );
            Failure::new(Code::Report, message, e)
        })
    }

    fn place(path: &Path) -> io::Result<Self> {
        let target = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => return special(path),
            Ok(_) => path.canonicalize()?,
            Err(e) if e.kind() == ErrorKind::NotFound => path.to_owned(),
            Err(e) => return Err(e),
        };
        let name = target.file_name().ok_or(ErrorKind::IsADirectory)?;
        let mut name = name.to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = target.with_file_name(name);
        File::create_new(&partial)?;
        std::fs::remove_file(&partial)?;
        Ok(Self::File {
            path: path.to_owned(),
            target,
            partial,
        })
    }

    /// Whether the report takes the place of the table.
    pub fn is_output(&self) -> bool {
        matches!(self, Self::Output)
    }

    /// Writes the report.
    pub fn write(self, report: &impl Serialize) -> Result<(), Failure> {
        let (path, written) = match self {
            Self::None => return Ok(()),
            Self::Output => {
                let mut text = Vec::new();
                return write_json(&mut text, report)
                    .map_err(|e| Failure::new(Code::Report, "cannot make JSON of the report", e))
                    .and_then(|()| terminal::print_results(&String::from_utf8_lossy(&text)));
            }
            Self::Special { path, file } => (path, write_json(BufWriter::new(file), report)),
            Self::File {
                path,
                target,
                partial,
            } => (path, replace(&target, &partial, report)),
        };
        written.map_err(|e| {
            let message = format!("cannot write the report {}", path.display());
            Failure::new(Code::Report, message, e)
        })
    }
}

/// Opens what is no regular file, without waiting for a reader: nobody may ever come.
fn special(path: &Path) -> io::Result<ReportFile> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(nonblock)
        .open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    let path = path.to_owned();
    Ok(ReportFile::Special { path, file })
}

fn replace(target: &Path, partial: &Path, report: &impl Serialize) -> io::Result<()> {
    let file = File::create_new(partial)?;
    write_json(BufWriter::new(file), report)
        .and_then(|()| std::fs::rename(partial, target))
        .inspect_err(|_| {
            // The report could not be written; what there is of it is of no use.
            let _ = std::fs::remove_file(partial);
        })
}

fn write_json(mut out: impl Write, report: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, report)?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("causeway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn names(directory: &Path) -> Vec<std::ffi::OsString> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|e| e.unwrap().file_name()).collect()
    }

    #[test]
    fn preparing_leaves_nothing_even_if_the_process_dies_right_after() {
        let directory = scratch("prepared");
        let prepared = ReportFile::prepare(Some(&directory.join("report.json"))).unwrap();
        assert!(names(&directory).is_empty(), "{:?}", names(&directory));
        std::mem::forget(prepared);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn devices_are_written_to_and_not_replaced() {
        let prepared = ReportFile::prepare(Some(Path::new("/dev/null"))).unwrap();
        assert!(
            matches!(prepared, ReportFile::Special { .. }),
            "{prepared:?}"
        );
    }

    #[test]
    fn a_link_stays_and_its_file_is_what_is_replaced() {
        let directory = scratch("linked");
        let (file, link) = (directory.join("file"), directory.join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let prepared = ReportFile::prepare(Some(&link)).unwrap();
        let ReportFile::File { target, .. } = &prepared else {
            panic!("{prepared:?}");
        };
        assert_eq!(*target, file.canonicalize().unwrap());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
