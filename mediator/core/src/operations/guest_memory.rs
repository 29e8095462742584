//! Memory that a message names by address: guest RAM, or the client's memory in the aperture.
//!
//! A process of a guest with an operating system knows no guest-physical addresses. It puts images
//! and packets into its host memory, and names that by its offset in the aperture
//! ([`APERTURE_ADDRESS`]).

use std::sync::Arc;

use causeway_memory::{Mapping, PAGE_BYTES, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{APERTURE_ADDRESS, Status};

use crate::client_session::ClientSession;
use crate::object::MemoryEntry;
use crate::refusal::Refusal;

impl ClientSession<'_> {
    /// Copies `into.len()` bytes from the guest's memory at `address`.
    pub(super) fn read_guest(&self, address: u64, into: &mut [u8]) -> Result<(), Refusal> {
        if address & APERTURE_ADDRESS == 0 {
            return Ok(self.peers.host.read_ram(address, into)?);
        }
        let (mapping, within) = self.map_object(address, into.len() as u64, Access::Read)?;
        let copied = mapping.read(within, into);
        copied.map_err(|_| Refusal::new(Status::BadRange))
    }

    /// Checks that the guest has `bytes` bytes of memory at `address`, as [`Self::read_guest`]
    /// does.
    pub(super) fn check_guest(&self, address: u64, bytes: u64) -> Result<(), Refusal> {
        if address & APERTURE_ADDRESS != 0 {
            return self.mapped_object(address, bytes, Access::Read).map(drop);
        }
        let last = address
            .checked_add(bytes)
            .and_then(|end| end.checked_sub(1));
        let last = last.ok_or(Refusal::new(Status::BadRange))?;
        // RAM has at most two regions, and the VMM checks a copy as a whole. A copy that is refused
        // nonetheless has touched nothing of its buffer.
        self.peers.host.read_ram(address, &mut [0])?;
        Ok(self.peers.host.read_ram(last, &mut [0])?)
    }

    /// Copies `from` to the guest's memory at `address`.
    pub(super) fn write_guest(&self, address: u64, from: &[u8]) -> Result<(), Refusal> {
        if address & APERTURE_ADDRESS == 0 {
            return Ok(self.peers.host.write_ram(address, from)?);
        }
        let (mapping, within) = self.map_object(address, from.len() as u64, Access::ReadWrite)?;
        let copied = mapping.write(within, from);
        copied.map_err(|_| Refusal::new(Status::BadRange))
    }

    /// Maps the pages behind a range of the aperture, and returns where the range begins in them.
    fn map_object(
        &self,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(Mapping, u64), Refusal> {
        let (memory, offset) = self.mapped_object(address, bytes, access)?;
        let within = offset % PAGE_BYTES;
        let mapping = memory.map(offset - within, within + bytes, access)?;
        Ok((mapping, within))
    }

    /// Returns the object behind a range of the aperture that is within one mapping, and the offset
    /// in the object. The range may be unmapped meanwhile, since the caller holds the object.
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
        // CPUs read memory of a device slowly, and only its driver can map it.
        let (memory, base) = backing.host().ok_or(Refusal::new(Status::BadMemory))?;
        Ok((Arc::clone(memory), base + mapping.from + within))
    }
}
