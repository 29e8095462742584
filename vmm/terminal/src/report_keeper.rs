//! A second process that writes a report, for a command that gives up the right to write files.
//!
//! The keeper is another run of this program. It gets the length and the text of the report by its
//! standard input, and writes the file when it has all of it. If this process ends before, the file
//! stays as it is.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use crate::failure::Failure;
use crate::output_file::OutputFile;

/// Name of the hidden subcommand that runs the keeper; its argument is the file.
const KEEPER: &str = "report-keeper";
/// Longest report. A guest may have taken over the process that sends it.
const BYTES_MAX: u64 = 256 << 20;

/// The process that will write a report. A drop ends it.
#[derive(Debug)]
pub struct ReportKeeper(Child);

impl ReportKeeper {
    /// Starts the keeper of the file at `path`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(path: &Path) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        let words = [OsStr::new(KEEPER), OsStr::new("--"), path.as_os_str()];
        command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A signal of the terminal ends the command, which then writes its report.
            .process_group(0);
        command.spawn().map(Self)
    }

    /// Has the keeper write `text` to the file, and waits until it has.
    ///
    /// # Errors
    /// What the keeper says, or the error of the system call by which it is reached.
    pub fn write(mut self, text: &[u8]) -> io::Result<()> {
        let input = self.0.stdin.take();
        let sent = input.map_or(Ok(()), |mut input| {
            input.write_all(&(text.len() as u64).to_le_bytes())?;
            input.write_all(text)
        });
        let mut said = String::new();
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut said)?;
        }
        let status = self.0.wait()?;
        match (status.success(), said.is_empty()) {
            (true, _) => sent,
            (false, false) => Err(io::Error::other(said)),
            (false, true) => Err(io::Error::other(format!(
                "the process that writes it: {status}"
            ))),
        }
    }
}

impl Drop for ReportKeeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // An error means that it has ended.
        let _ = self.0.wait();
    }
}

/// Writes what the process sends that started this one to the file at `path`, if it sends all of
/// it. Says on standard output why that fails.
///
/// # Errors
/// A usage failure if standard output is gone.
pub fn keep_report(path: &Path) -> Result<ExitCode, Failure> {
    let Err(error) = keep(path) else {
        return Ok(ExitCode::SUCCESS);
    };
    let told = io::stdout().write_all(error.to_string().as_bytes());
    told.map_err(|e| Failure::usage_from(KEEPER, &crate::shown_path(path), e))?;
    Ok(ExitCode::FAILURE)
}

fn keep(path: &Path) -> io::Result<()> {
    let (mut length, mut text) = ([0; 8], Vec::new());
    let mut input = io::stdin().lock();
    match input.read_exact(&mut length) {
        // There is no report.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        read => read?,
    }
    let length = u64::from_le_bytes(length);
    if length > BYTES_MAX {
        return Err(io::Error::other("the report is too long"));
    }
    input.take(length).read_to_end(&mut text)?;
    match text.len() as u64 == length {
        true => OutputFile::prepare(path)?.write(|out| out.write_all(&text)),
        false => Err(io::Error::other("the report is not complete")),
    }
}
