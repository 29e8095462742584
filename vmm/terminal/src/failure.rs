//! Failures of the command: each has a message and an exit code.

use std::error::Error;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;

/// Exit codes, as `causeway --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A guest reported a failure.
    GuestFailed = 1,
    /// An argument is invalid.
    Usage = 2,
    /// KVM is missing or forbidden.
    Kvm = 3,
    /// The image cannot boot.
    Image = 4,
    /// A guest crashed, or its VM could not continue.
    Crashed = 5,
    /// The timeout passed.
    Timeout = 6,
    /// The report cannot be written.
    Report = 7,
    /// The GPU of `--gpu` is not available.
    Gpu = 8,
    /// A device of `--vfio` is not available, or the host takes it back.
    Device = 9,
    /// SIGINT.
    Interrupted = 130,
    /// SIGTERM.
    Terminated = 143,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// A failure of the command: message, cause and exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    code: Code,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// Returns a failure with a cause.
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

    /// Returns a usage failure.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: Code::Usage,
            message: message.into(),
            source: None,
        }
    }

    /// Returns a usage failure for an invalid value, with the reason as its cause.
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

    /// Returns the failure for a GPU that is not available.
    pub fn gpu(message: impl Into<String>) -> Self {
        Self {
            code: Code::Gpu,
            message: message.into(),
            source: None,
        }
    }

    /// Returns the failure for a file that cannot be read. `what` names the role of the file, such
    /// as "initramfs".
    pub fn file(what: &str, path: &Path, source: std::io::Error) -> Self {
        let message = format!("cannot read the {what} {}", path.display());
        Self::new(Code::Image, message, source)
    }

    /// Returns the message and its causes in one line.
    pub fn text(&self) -> String {
        let mut line = self.message.clone();
        let mut cause = self.source();
        while let Some(error) = cause {
            line.push_str(": ");
            line.push_str(&error.to_string());
            cause = error.source();
        }
        line
    }

    /// Prints the message and its causes to standard error.
    pub fn print(&self) {
        crate::output::say(&format!("causeway: {}", self.text()));
    }

    /// Returns the exit code.
    pub fn exit_code(&self) -> ExitCode {
        self.code.into()
    }
}

/// Refuses a value that is out of range. `option` names the argument, with its dashes.
///
/// # Errors
/// A usage failure that names the option, the value and the range.
pub fn check_range(option: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), Failure> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(Failure::usage(format!(
        "invalid value {value} for {option}: {least} to {most}"
    )))
}
