//! Errors with their causes, for log lines and reports.

use std::error::Error;

/// Returns the text of `error` and of all its causes, as one clause: `error: cause: its cause`.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
