//! Why a process cannot serve as a worker.

use std::error::Error;
use std::io;

use causeway_mediator::backend::cause;

use crate::socket::SocketError;

/// Why this process cannot serve a VMM as a worker.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The process was not started by a VMM, or the kernel refuses a setting that a worker needs.
    #[error(
        "this command is internal: only `causeway run` starts it, with a socket as standard input"
    )]
    NotStarted(#[source] io::Error),
    /// The VMM that started the process has ended already.
    #[error("the `causeway` process that started this worker has ended, so the worker ends too")]
    Orphan,
    /// The session cannot be opened.
    #[error("the worker cannot open its session: {reason}")]
    Begin {
        /// What went wrong.
        reason: String,
    },
}

impl From<SocketError> for ServeError {
    fn from(error: SocketError) -> Self {
        Self::begin(&error)
    }
}

impl ServeError {
    /// Returns the error of a session that cannot be opened because of `error`.
    pub(super) fn begin(error: &dyn Error) -> Self {
        Self::Begin {
            reason: chain(error),
        }
    }
}

/// Returns an error with its causes, as one clause.
pub(super) fn chain(error: &dyn Error) -> String {
    format!("{error}{}", cause(error))
}
