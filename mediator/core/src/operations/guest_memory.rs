//! Memory that a message names by address: guest RAM, or what the client has mapped in the aperture.
//!
//! A process of a guest that runs an operating system knows no guest-physical addresses. It puts images and packets into
//! host memory of its own, and names that by its offset in the aperture ([`APERTURE_ADDRESS`]).

use std::sync::Arc;

use causeway_memory::{PAGE_BYTES, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{APERTURE_ADDRESS, Status};

use crate::client_session::ClientSession;
use crate::object::MemoryEntry;
use crate::refusal::{Refusal, cause};

impl ClientSession<'_> {
    /// Copies out what the guest has at `address`.
    pub(super) fn read_guest(&self, address: u64, into: &mut [u8]) -> Result<(), Refusal> {
        if address & APERTURE_ADDRESS == 0 {
            return Ok(self.host.read_ram(address, into)?);
        }
        let bytes = into.len() as u64;
        let (memory, from) = self.mapped_object(address, bytes, Access::Read)?;
        let (start, within) = (from - from % PAGE_BYTES, from % PAGE_BYTES);
        let mapping = memory
            .map(start, within + bytes, Access::Read)
            .map_err(|e| no_memory(&e))?;
        let copied = mapping.read(within, into);
        copied.map_err(|_| Refusal::new(Status::BadRange))
    }

    /// Copies to where the guest wants it.
    pub(super) fn write_guest(&self, address: u64, from: &[u8]) -> Result<(), Refusal> {
        if address & APERTURE_ADDRESS == 0 {
            return Ok(self.host.write_ram(address, from)?);
        }
        let bytes = from.len() as u64;
        let (memory, to) = self.mapped_object(address, bytes, Access::ReadWrite)?;
        let (start, within) = (to - to % PAGE_BYTES, to % PAGE_BYTES);
        let mapping = memory
            .map(start, within + bytes, Access::ReadWrite)
            .map_err(|e| no_memory(&e))?;
        let copied = mapping.write(within, from);
        copied.map_err(|_| Refusal::new(Status::BadRange))
    }

    /// The object behind a range of the aperture that lies in one mapping, and where in the object it begins. Held, so that
    /// the range may be unmapped meanwhile.
    fn mapped_object(
        &self,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(Arc<SharedMemory>, u64), Refusal> {
        let outside = Refusal::new(Status::BadRange);
        let offset = address & !APERTURE_ADDRESS;
        let state = self.lock();
        let (start, mapping) = state.aperture.range(..=offset).next_back().ok_or(outside)?;
        let within = offset - start;
        let end = within.checked_add(bytes).ok_or(outside)?;
        if end > mapping.bytes || bytes == 0 || !state.owns(mapping.memory) {
            return Err(outside);
        }
        let entry = state.get::<MemoryEntry>(mapping.memory)?;
        entry.check_access(access)?;
        let backing = entry.cpu_visible()?;
        // Memory of a device is slow to read for CPUs, and a driver's to map.
        let (memory, base) = backing.host().ok_or(Refusal::new(Status::BadMemory))?;
        Ok((Arc::clone(memory), base + mapping.from + within))
    }
}

/// The host is out of memory or of mappings.
fn no_memory(error: &causeway_memory::MemoryError) -> Refusal {
    log::debug!("memory of a guest: {error}{}", cause(error));
    Refusal::new(Status::NoMemory)
}
