//! Control windows: host memory in the aperture, in which a client that has no guest RAM of its own
//! puts its batches.

use std::sync::Arc;

use causeway_mediator::host::PlaceError;
use causeway_memory::{Mapping, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::registers::CONTROL_WINDOW_BYTES;

use crate::aperture::Aperture;

/// The control window of one client: memory in the aperture for its batches. The memory is not
/// shared with anything else, and lives as long as a reference to the window.
pub(super) struct ControlWindow {
    /// Offset of the control window in the aperture.
    pub offset: u64,
    /// The control window's memory, mapped into the VMM's process.
    pub mapping: Mapping,
}

impl ControlWindow {
    /// Creates the control window of a client, host memory into which the client writes its
    /// batches, and places it in `aperture`.
    ///
    /// # Errors
    /// [`PlaceError::Map`] if the host has no memory for it, `Full` or `Slot` if the aperture has
    /// no room. On an error, nothing has changed.
    pub fn place(aperture: &Aperture) -> Result<Self, PlaceError> {
        let bytes = CONTROL_WINDOW_BYTES;
        let failed = |source| PlaceError::Map { bytes, source };
        let memory = SharedMemory::new("control window", bytes, PageSize::Small).map_err(failed)?;
        let mapping = memory.map(0, bytes, Access::ReadWrite).map_err(failed)?;
        let backing = Arc::new(memory).into();
        let offset = aperture.place(&backing, 0, bytes, Access::ReadWrite)?;
        Ok(Self { offset, mapping })
    }

    /// Removes the control window, the memory for a client's batches, from `aperture`. The memory
    /// itself lives on while the host executes a batch that is in it.
    pub fn remove(&self, aperture: &Aperture) {
        if let Err(e) = aperture.remove(self.offset) {
            let offset = self.offset;
            log::error!(
                "cannot remove a client's control window (its memory for messages) from aperture \
                 offset {offset:#x}: {e}"
            );
        }
    }
}
