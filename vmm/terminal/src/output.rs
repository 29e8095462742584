//! Standard output and standard error. The progress line cuts no other line, and a closed pipe does
//! not end the process.

use std::io::{self, ErrorKind, IsTerminal, Write};

use indicatif::ProgressBar;
use parking_lot::Mutex;

use crate::failure::{Code, Failure};

/// Width in characters for text that goes to a file, a pipe, or a terminal of unknown width.
pub const WIDTH_ELSEWHERE: usize = 110;

/// The progress line, while one is shown.
static PROGRESS: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Sets the progress line at the bottom of the terminal, or removes it with `None`. Other output
/// hides the line while it is printed.
pub fn set_progress(bar: Option<ProgressBar>) {
    *PROGRESS.lock() = bar;
}

/// Prints `line` to standard error. Errors are ignored, because no other stream is left to report
/// them.
pub fn say(line: &str) {
    write_error(format!("{line}\n").as_bytes());
}

/// Writes `bytes`, one or more lines, to standard error. Errors are ignored, as for [`say`].
pub fn write_error(bytes: &[u8]) {
    let write = || {
        let _ = io::stderr().lock().write_all(bytes);
    };
    match &*PROGRESS.lock() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Prints `text`, results of the command, to standard output. A reader that closes the pipe (`|
/// head -1`) is not a failure.
///
/// # Errors
/// A failure with [`Code::Report`] if standard output cannot be written.
pub fn print_results(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Prints `text`, a part of continuous results, to standard output. Returns false if the reader has
/// closed the pipe, so that the command can end.
///
/// # Errors
/// A failure with [`Code::Report`] if standard output cannot be written.
pub fn print_while_read(text: &str) -> Result<bool, Failure> {
    let written = write_output(text.as_bytes());
    let read = !matches!(&written, Err(e) if e.kind() == ErrorKind::BrokenPipe);
    finish_output(written).map(|()| read)
}

/// Prints binary results of the command to standard output. A reader that closes the pipe is not a
/// failure.
///
/// # Errors
/// A failure with [`Code::Report`] if standard output cannot be written.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    finish_output(write_output(bytes))
}

fn write_output(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

fn finish_output(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            Code::Report,
            "cannot write the results to standard output",
            e,
        )),
        _ => Ok(()),
    }
}

/// Returns the width of the terminal on standard output in characters. Returns `None` if standard
/// output is not a terminal, or the terminal does not report its width.
pub fn output_width() -> Option<usize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    (size.ws_col != 0).then_some(size.ws_col.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_enough_is_no_failure_and_a_full_disk_is_one() {
        assert!(finish_output(Err(ErrorKind::BrokenPipe.into())).is_ok());
        assert!(finish_output(Err(ErrorKind::StorageFull.into())).is_err());
        assert!(finish_output(Ok(())).is_ok());
    }
}
