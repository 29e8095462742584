//! Why a back end refuses.

use causeway_protocol::message::Status;

/// Why an operation of a back end failed. The guest sees only [`Self::status`]; the rest is for
/// logs.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct BackendError {
    /// Status that the guest receives.
    pub status: Status,
    /// Which operation failed, with which values, as text for logs.
    pub context: String,
    /// The error that caused the failure, if there is one.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl BackendError {
    /// Returns an error without a cause: `status` is for the guest, and `context` names the failed
    /// operation for logs.
    pub fn new(status: Status, context: impl Into<String>) -> Self {
        Self {
            status,
            context: context.into(),
            source: None,
        }
    }

    /// Returns this error with `source` as its cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// Returns the causes of `error` as text, each after a colon, for a log line that shows `error`
/// itself first. The text is empty if `error` has no cause.
pub fn cause(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// Why a back end cannot load a module.
#[derive(Debug, thiserror::Error)]
#[error("{}{reason}", place(*.line))]
pub struct ModuleError {
    /// Line of the module's text that contains the mistake, counted from 1; 0 if the mistake is not
    /// in a particular line.
    pub line: u32,
    /// What is wrong with the module and, if possible, how to correct it.
    pub reason: String,
}

impl ModuleError {
    /// Returns the error for a mistake in line `line` of a module, counted from 1 (0 if the mistake
    /// is not in a particular line). `reason` describes the mistake.
    pub fn new(line: u32, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { line, reason }
    }
}

fn place(line: u32) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_causes_of_an_error_are_shown() {
        let deepest = BackendError::new(Status::NoMemory, "no pages");
        let middle = BackendError::new(Status::NoMemory, "no object").because(deepest);
        let error = BackendError::new(Status::NoMemory, "no memory").because(middle);
        assert_eq!(cause(&error), ": no object: no pages");
        assert_eq!(cause(&BackendError::new(Status::NoMemory, "no memory")), "");
    }
}
