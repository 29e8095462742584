//! Failures that a test asks for.

use std::collections::HashMap;

use causeway_mediator::backend::BackendError;
use causeway_protocol::message::Status;
use parking_lot::Mutex;

/// The operations that fail, with their status.
#[derive(Default)]
pub(crate) struct Failures(Mutex<HashMap<&'static str, Status>>);

impl Failures {
    /// Makes `operation` fail with `status`, or succeed.
    pub fn set(&self, operation: &'static str, status: Option<Status>) {
        match status {
            Some(status) => self.0.lock().insert(operation, status),
            None => self.0.lock().remove(operation),
        };
    }

    /// Returns the status with which `operation` fails.
    pub fn status(&self, operation: &str) -> Option<Status> {
        self.0.lock().get(operation).copied()
    }

    /// Fails if `operation` is to fail.
    pub fn check(&self, operation: &str) -> Result<(), BackendError> {
        match self.status(operation) {
            Some(status) => Err(error(status, operation)),
            None => Ok(()),
        }
    }
}

/// An error of a back end without a source.
pub(crate) fn error(status: Status, context: &str) -> BackendError {
    BackendError::new(status, context)
}
