//! Files that the command writes. Each is checked before the work starts, and replaced only by
//! complete content.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::escape::shown_path;
use crate::failure::Failure;
use crate::leftovers::Leftover;

/// A file or special file to which the command writes output.
#[derive(Debug)]
pub enum OutputFile {
    /// A regular file. New content is first written to a temporary file, which then replaces this
    /// file.
    File {
        /// Path of the file, with symbolic links resolved.
        target: PathBuf,
        /// Path of the temporary file, which exists only while output is being written.
        partial: PathBuf,
    },
    /// A pipe, device or other special file, which is written to and never replaced.
    Special {
        /// The special file, open for writing.
        file: File,
    },
}

impl OutputFile {
    /// Checks that `path` can be written to, and returns it as a destination. The check leaves no
    /// new file behind, and changes no existing file.
    ///
    /// # Errors
    /// The error of the system call that failed, such as a missing directory or permission.
    pub fn prepare(path: &Path) -> io::Result<Self> {
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
        check_creation(&partial)?;
        Ok(Self::File { target, partial })
    }

    /// Calls `content` with a writer, and makes what it writes the new content of the destination.
    ///
    /// # Errors
    /// The error of `content`, or that of writing the file. The destination is then unchanged,
    /// unless it is a special file.
    pub fn write(self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Special { file } => write_all(file, content),
            Self::File { target, partial } => {
                // Removed, because the incomplete file is of no use.
                let path = partial.clone();
                let remove = move || drop(std::fs::remove_file(path));
                let file = File::create_new(&partial)?;
                let _leftover = Leftover::new(remove.clone());
                write_all(file, content)
                    .and_then(|()| std::fs::rename(&partial, target))
                    .inspect_err(|_| remove())
            }
        }
    }
}

/// Checks that the file `path`, which must not exist, can be created.
fn check_creation(path: &Path) -> io::Result<()> {
    // Also finds names that are too long.
    match std::fs::symlink_metadata(path) {
        Ok(_) => return Err(ErrorKind::AlreadyExists.into()),
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        Err(_) => {}
    }
    // A file without a name is gone with this process, even if it is killed now.
    match unnamed_file(path) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            // This file system, or an old kernel, has only files with names.
            File::create_new(path)?;
            std::fs::remove_file(path)
        }
        unnamed => Ok(unnamed.map(drop)?),
    }
}

/// Creates a file without a name in the folder of `path`.
fn unnamed_file(path: &Path) -> rustix::io::Result<OwnedFd> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(
        folder.unwrap_or(Path::new(".")),
        flags,
        Mode::RUSR | Mode::WUSR,
    )
}

/// Refuses options of which two name the same file, or standard output (`-`). `options` are their
/// names and values. Special files can be named twice.
///
/// # Errors
/// A usage failure that names the two options and the file.
pub fn refuse_same_file(options: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    let given = options
        .iter()
        .filter_map(|(name, path)| Some((*name, (*path)?)));
    let given: Vec<(&str, &Path)> = given.collect();
    for (index, (name, path)) in given.iter().enumerate() {
        let same = given[..index]
            .iter()
            .find(|(_, other)| is_same(other, path));
        if let Some((other, _)) = same {
            let place = match *path == Path::new("-") {
                true => String::from("standard output"),
                false => shown_path(path),
            };
            return Err(Failure::usage(format!(
                "{other} and {name} both write to {place}: name two files"
            )));
        }
    }
    Ok(())
}

/// Returns whether two paths name one file, also if it does not exist yet.
fn is_same(one: &Path, other: &Path) -> bool {
    let is_special = |path: &Path| std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    one == other && !is_special(one) || resolved(one).is_some_and(|at| Some(at) == resolved(other))
}

/// Returns the path of a regular file, or of one that does not exist, without links.
fn resolved(path: &Path) -> Option<PathBuf> {
    match std::fs::metadata(path) {
        Ok(found) => found.is_file().then(|| path.canonicalize().ok())?,
        Err(_) => {
            let folder = path.parent()?;
            let folder = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            Some(folder.canonicalize().ok()?.join(path.file_name()?))
        }
    }
}

fn write_all(file: File, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    content(&mut out)?;
    out.flush()
}

/// Opens a special file without waiting for a reader, which may never come.
fn special(path: &Path) -> io::Result<OutputFile> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(nonblock)
        .open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(OutputFile::Special { file })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

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
        let prepared = OutputFile::prepare(&directory.join("report.json")).unwrap();
        assert!(names(&directory).is_empty(), "{:?}", names(&directory));
        std::mem::forget(prepared);
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// A process can be killed at any moment, and then removes nothing.
    #[test]
    fn preparing_makes_no_name_even_for_a_moment() {
        let directory = scratch("unnamed");
        let report = directory.join("report.json");
        if unnamed_file(&report).is_err() {
            eprintln!(
                "skipped: {} has no files without names",
                directory.display()
            );
            return;
        }
        let folder = File::open(&directory).unwrap();
        // A name that comes or goes changes this time.
        folder.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        OutputFile::prepare(&report).unwrap();
        let changed = folder.metadata().unwrap().modified().unwrap();
        assert_eq!(changed, SystemTime::UNIX_EPOCH);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_created_is_refused_when_it_is_prepared() {
        let directory = scratch("refused");
        for (path, kind) in [
            (directory.join("none/report.json"), ErrorKind::NotFound),
            (directory.join("n".repeat(250)), ErrorKind::InvalidFilename),
            (PathBuf::from("/proc/report.json"), ErrorKind::NotFound),
        ] {
            let refused = OutputFile::prepare(&path).unwrap_err();
            assert_eq!(refused.kind(), kind, "{}", path.display());
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn devices_are_written_to_and_not_replaced() {
        let prepared = OutputFile::prepare(Path::new("/dev/null")).unwrap();
        assert!(
            matches!(prepared, OutputFile::Special { .. }),
            "{prepared:?}"
        );
    }

    #[test]
    fn a_link_stays_and_its_file_is_what_is_replaced() {
        let directory = scratch("linked");
        let (file, link) = (directory.join("file"), directory.join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let prepared = OutputFile::prepare(&link).unwrap();
        prepared.write(|out| out.write_all(b"new")).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn two_outputs_to_one_file_are_refused_however_it_is_named() {
        let directory = scratch("same");
        let file = directory.join("file");
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, directory.join("link")).unwrap();
        let refused = |one: &Path, other: &Path| {
            let options = [
                ("--one", Some(one)),
                ("--none", None),
                ("--other", Some(other)),
            ];
            refuse_same_file(&options)
                .err()
                .map(|failure| failure.to_string())
        };
        let at = |name: &str| directory.join(name);
        for (one, other) in [
            (at("file"), at("link")),
            (at("new"), at("new")),
            (
                at("new"),
                at("../").join(directory.file_name().unwrap()).join("new"),
            ),
            (PathBuf::from("-"), PathBuf::from("-")),
        ] {
            let message = refused(&one, &other).unwrap_or_else(|| panic!("{one:?} {other:?}"));
            assert!(
                message.starts_with("--one and --other both write to "),
                "{message}"
            );
        }
        assert_eq!(refused(&at("new"), &at("file")), None);
        assert_eq!(refused(&at("new"), Path::new("-")), None);
        assert_eq!(
            refused(Path::new("/dev/null"), Path::new("/dev/null")),
            None
        );
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_cannot_be_completed_leaves_what_was_there() {
        let directory = scratch("incomplete");
        let file = directory.join("file");
        std::fs::write(&file, "old").unwrap();
        let prepared = OutputFile::prepare(&file).unwrap();
        let written = prepared.write(|out| {
            out.write_all(b"half")?;
            Err(ErrorKind::StorageFull.into())
        });
        assert_eq!(written.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        assert_eq!(names(&directory).len(), 1);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
