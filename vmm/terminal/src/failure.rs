//! Failures of the command: each has a message and an exit code.

use std::error::Error;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::Signal;

use crate::escape::{escaped, shown_path};

/// Exit codes of the command `causeway`, as `causeway --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A guest reported a failure, or a comparison of reports found changes.
    GuestFailed = 1,
    /// An argument of the command is invalid.
    Usage = 2,
    /// KVM is missing, too old, or the user has no permission to use it.
    Kvm = 3,
    /// The guest's image cannot be loaded or boot.
    Image = 4,
    /// A guest crashed, or its VM could not go on.
    Crashed = 5,
    /// A guest did not end within the time of `--timeout`.
    Timeout = 6,
    /// Results, a report or another output file cannot be written.
    Report = 7,
    /// The GPU of `--gpu` is not available.
    Gpu = 8,
    /// A device of `--vfio` is not available, or the host wants it back.
    Device = 9,
    /// The data path of a guest had exits, or a guest marked no phase of it or too many, and
    /// `--require-zero-exits` was given.
    DataPathExits = 10,
    /// The signal SIGHUP (the terminal is gone) ended the command.
    HungUp = 129,
    /// The signal SIGINT (Ctrl-C) ended the command.
    Interrupted = 130,
    /// Another process sent the signal SIGPIPE, which ended the command.
    BrokenPipe = 141,
    /// The signal SIGTERM ended the command.
    Terminated = 143,
}

impl Code {
    /// Returns the exit code of a command that `signal`, one of those that end a command, has
    /// ended: 128 and the number of the signal.
    pub fn of_signal(signal: i32) -> Self {
        match Signal::from_named_raw(signal) {
            Some(Signal::HUP) => Self::HungUp,
            Some(Signal::PIPE) => Self::BrokenPipe,
            Some(Signal::TERM) => Self::Terminated,
            _ => Self::Interrupted,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Why the command `causeway` fails: a message, its cause and the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    code: Code,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// Returns a failure with exit code `code` and `message`, and `source` as its cause.
    pub fn new(
        code: Code,
        message: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self {
            code,
            message: message.into(),
            source: Some(Box::new(source)),
        }
    }

    /// Returns a failure with [`Code::Usage`] and `message`, for invalid arguments of the command.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::without_cause(Code::Usage, message)
    }

    /// Returns the failure, with [`Code::Usage`], for an invalid `value` of `argument`. Its cause
    /// is `source`, which says why the value is invalid.
    pub fn usage_from(
        argument: &str,
        value: &str,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self::new(
            Code::Usage,
            format!("invalid value {value} for {argument}"),
            source,
        )
    }

    /// Returns a failure with [`Code::Gpu`] and `message`, for a GPU of `--gpu` that is not
    /// available.
    pub fn gpu(message: impl Into<String>) -> Self {
        Self::without_cause(Code::Gpu, message)
    }

    /// Returns a failure with [`Code::Image`] and `message`, for a file that cannot boot.
    pub fn image(message: impl Into<String>) -> Self {
        Self::without_cause(Code::Image, message)
    }

    /// Returns a failure with exit code `code` and `message`, which says all.
    pub fn without_cause(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            source: None,
        }
    }

    /// Returns the failure, with [`Code::Image`], for a file of the guest at `path` that cannot be
    /// read. `what` names the role of the file, such as "initramfs".
    pub fn file(what: &str, path: &Path, source: std::io::Error) -> Self {
        let message = format!("cannot read the {what} {}", shown_path(path));
        Self::new(Code::Image, message, source)
    }

    /// Returns this failure with `place` in front of its message: the file and the line where the
    /// mistake is.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        Self {
            message: format!("{place}: {}", self.message),
            ..self
        }
    }

    /// Returns the message and all its causes in one line, separated by colons. Control characters
    /// in it, for example of file names, are escaped.
    pub fn text(&self) -> String {
        let mut line = self.message.clone();
        let mut cause = self.source();
        while let Some(error) = cause {
            line.push_str(": ");
            line.push_str(&error.to_string());
            cause = error.source();
        }
        escaped(&line).into_owned()
    }

    /// Prints the message and all its causes to standard error, and logs them to the file of
    /// `--log-file`.
    pub fn print(&self) {
        crate::output::say(&format!("causeway: {}", self.text()));
        log::error!(target: crate::logs::PRINTED, "{}", self.text());
    }

    /// Returns the exit code with which the command must end.
    pub fn exit_code(&self) -> ExitCode {
        self.code.into()
    }
}

/// Checks that `value` of the command-line argument `option` is in `range`. `option` is the
/// argument's name with its dashes. `unit` follows the range in the message: a blank and the unit,
/// or nothing for plain numbers.
///
/// # Errors
/// A failure with [`Code::Usage`] that names the option, the value and the range, if the value is
/// outside.
pub fn check_range(
    option: &str,
    value: u64,
    range: RangeInclusive<u64>,
    unit: &str,
) -> Result<(), Failure> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(Failure::usage(format!(
        "invalid value {value} for {option}: choose {least} to {most}{unit}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_a_file_is_called() {
        let name = Path::new("a\nb\x1b[31m");
        let failure = Failure::file("initramfs", name, std::io::Error::other("it is\tempty"));
        let text = failure.text();
        assert_eq!(
            text,
            "cannot read the initramfs a\\nb\\u{1b}[31m: it is\\tempty"
        );
    }
}
