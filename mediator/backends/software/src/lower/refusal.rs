//! Why a module is refused.

/// Why a module cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {reason}")]
pub(crate) struct Refusal {
    /// Line in the source, from 1.
    pub(crate) line: u32,
    /// What is wrong.
    pub(crate) reason: String,
}

impl Refusal {
    /// A refusal of what is at `line`.
    pub(crate) fn new(line: u32, reason: impl Into<String>) -> Self {
        Self {
            line,
            reason: reason.into(),
        }
    }
}

/// Result of lowering.
pub(crate) type Result<T = ()> = std::result::Result<T, Refusal>;
