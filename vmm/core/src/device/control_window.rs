//! Control windows: host memory in the aperture, in which a client that has no guest RAM of its own
//! puts its batches.

use std::sync::Arc;

use causeway_mediator::host::PlaceError;
use causeway_memory::{Mapping, PageSize, RangeError, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::registers::CONTROL_WINDOW_BYTES;

use crate::aperture::Aperture;

/// The control window of one client. Its memory is fresh, and lives as long as a reference to it.
pub(super) struct ControlWindow {
    /// Where it begins in the aperture.
    offset: u64,
    mapping: Mapping,
}

impl ControlWindow {
    /// Places a window.
    ///
    /// # Errors
    /// [`PlaceError::Map`] if there is no memory, `Full` or `Slot` if the aperture has no room.
    /// Then nothing changed.
    pub fn place(aperture: &Aperture) -> Result<Self, PlaceError> {
        let bytes = CONTROL_WINDOW_BYTES;
        let failed = |source| PlaceError::Map { bytes, source };
        let memory = SharedMemory::new("control window", bytes, PageSize::Small).map_err(failed)?;
        let mapping = memory.map(0, bytes, Access::ReadWrite).map_err(failed)?;
        let backing = Arc::new(memory).into();
        let offset = aperture.place(&backing, 0, bytes, Access::ReadWrite)?;
        Ok(Self { offset, mapping })
    }

    /// Takes it out of the aperture. A batch that is being executed still reads and writes its
    /// memory, which belongs to this client alone.
    pub fn remove(&self, aperture: &Aperture) {
        if let Err(e) = aperture.remove(self.offset) {
            log::error!("cannot remove a control window from the aperture: {e}");
        }
    }

    /// Returns the offset into the aperture.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Copies out from its beginning.
    pub fn read(&self, into: &mut [u8]) -> Result<(), RangeError> {
        self.mapping.read(0, into)
    }

    /// Copies in at its beginning.
    pub fn write(&self, from: &[u8]) -> Result<(), RangeError> {
        self.mapping.write(0, from)
    }
}
