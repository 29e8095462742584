//! Why an image is refused.

use causeway_mediator::backend::ModuleError;

/// Returns the refusal of an image for `reason`, without a line.
pub(crate) fn refused(reason: impl Into<String>) -> ModuleError {
    ModuleError::new(0, reason)
}
