//! What all sessions on a mediator use in turn.

use std::sync::Arc;

use crate::arbiter::Arbiter;
use crate::loads::Loads;

/// What all sessions on a mediator use in turn.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Loads of modules under way.
    pub loads: Arc<Loads>,
    /// Who may use a device that executes work while it is submitted.
    pub arbiter: Arc<Arbiter>,
}

impl Shared {
    /// Returns what the sessions share on a device of `units` compute units.
    pub fn new(units: u32) -> Self {
        Self {
            loads: Arc::default(),
            arbiter: Arbiter::new(units),
        }
    }
}
