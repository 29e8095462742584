//! The memory in which a guest has its records: its RAM, or host memory mapped into its aperture.

use std::sync::Arc;

use causeway_memory::{Mapping, PAGE_BYTES, RangeError};
use causeway_protocol::Access;
use causeway_vmm::aperture::{Aperture, Lease, LeasedMemory};
use causeway_vmm::memory::GuestRam;

use crate::record::RecordError;

/// Where a record begins in a guest's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In RAM, at this guest-physical address.
    Ram(u64),
    /// In the aperture, at this offset.
    Aperture(u64),
}

/// All memory in which one guest can have records: its RAM and its aperture.
#[derive(Debug)]
pub struct RecordMemory {
    /// The guest's RAM.
    pub ram: Arc<GuestRam>,
    /// The guest's aperture.
    pub aperture: Arc<Aperture>,
}

impl RecordMemory {
    /// Returns the memory of the `bytes` bytes at guest-physical `address`, in RAM or in the
    /// aperture, or `None` if not all of them are in one mapping.
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<LeasedMemory> {
        match self.ram.object(address, bytes) {
            Ok((memory, offset)) => Some(LeasedMemory {
                memory,
                offset,
                access: Access::ReadWrite,
                lease: Lease::default(),
            }),
            Err(_) => {
                let offset = address.checked_sub(self.aperture.base()?)?;
                self.aperture.object(offset, bytes)
            }
        }
    }

    /// Copies as many bytes from `place` as `into` has. Each byte is read once, because the guest
    /// may change it.
    pub(crate) fn read(&self, place: Place, into: &mut [u8]) -> Result<(), RecordError> {
        match place {
            Place::Ram(address) => Ok(self.ram.read(address, into)?),
            Place::Aperture(offset) => {
                let bytes = into.len() as u64;
                self.copy(offset, bytes, |mapping, within| mapping.read(within, into))
            }
        }
    }

    /// Copies the reply `from` over the record at `place`.
    pub(crate) fn reply(&self, place: Place, from: &[u8]) -> Result<(), RecordError> {
        match place {
            Place::Ram(address) => Ok(self.ram.write(address, from)?),
            Place::Aperture(offset) => {
                let bytes = from.len() as u64;
                self.copy(offset, bytes, |mapping, within| mapping.write(within, from))
            }
        }
    }

    /// Maps the record of `bytes` bytes at `offset` of the aperture, and calls `copy` with the
    /// mapping and the record's offset in it. The guest must be allowed to write the record, so
    /// that it is not another guest's.
    fn copy(
        &self,
        offset: u64,
        bytes: u64,
        copy: impl FnOnce(&Mapping, u64) -> Result<(), RangeError>,
    ) -> Result<(), RecordError> {
        let leased = self.aperture.object(offset, bytes);
        let leased = leased
            .filter(|leased| leased.access == Access::ReadWrite)
            .ok_or(RecordError::NotMapped { offset })?;
        let within = leased.offset % PAGE_BYTES;
        let start = leased.offset - within;
        let copied = leased.lease.during(|| {
            let mapping = leased.memory.map(start, within + bytes, Access::ReadWrite);
            let mapping = mapping.inspect_err(|e| log::debug!("cannot map a record: {e}"));
            copy(&mapping.ok()?, within).ok()
        });
        // Without a lease, the guest's mapping has ended meanwhile.
        copied.flatten().ok_or(RecordError::NotMapped { offset })
    }
}
