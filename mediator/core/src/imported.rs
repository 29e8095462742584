//! Memory that a session has imported from another session of its process.

use std::any::Any;
use std::sync::Arc;

use causeway_memory::Backing;

use crate::backend::{BackendError, Exported, Memory, Place};

/// Memory of this process that a session has imported. Each import is an object of its own: it
/// exists as long as the session or its work holds it.
pub(crate) struct Imported {
    pub memory: Arc<dyn Memory>,
    /// Where it is, as the importing session sees it.
    pub place: Place,
}

impl Memory for Imported {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn backing(&self) -> Option<Backing> {
        self.memory.backing()
    }

    fn place(&self) -> Place {
        self.place
    }

    fn export(&self) -> Result<Exported, BackendError> {
        self.memory.export()
    }

    fn as_any(&self) -> &dyn Any {
        self.memory.as_any()
    }
}
