//! What ends the command before it has a result: one message, one exit code.

use std::error::Error;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;

/// Exit codes, as `causeway --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A guest reported a failure.
    GuestFailed = 1,
    /// Bad argument.
    Usage = 2,
    /// KVM is missing or forbidden.
    Kvm = 3,
    /// Not an image that can boot.
    Image = 4,
    /// A guest crashed, or its VM could not go on.
    Crashed = 5,
    /// Out of time.
    Timeout = 6,
    /// The report cannot be written.
    Report = 7,
    /// The GPU that was asked for is not available.
    Gpu = 8,
    /// A device to be passed through is not available, or the host wants it back.
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

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    code: Code,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure with a cause.
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

    /// An invalid argument.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: Code::Usage,
            message: message.into(),
            source: None,
        }
    }

    /// An invalid value of an argument, with the reason as its cause.
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

    /// A GPU that is not available.
    pub fn gpu(message: impl Into<String>) -> Self {
        Self {
            code: Code::Gpu,
            message: message.into(),
            source: None,
        }
    }

    /// A file for the guest that cannot be read. `what` names its role, such as "initramfs".
    pub fn file(what: &str, path: &Path, source: std::io::Error) -> Self {
        let message = format!("cannot read the {what} {}", path.display());
        Self::new(Code::Image, message, source)
    }

    /// The message and its causes, in one line.
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

    /// Prints the message and its causes, once.
    pub fn print(&self) {
        crate::output::say(&format!("causeway: {}", self.text()));
    }

    /// The exit code.
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
