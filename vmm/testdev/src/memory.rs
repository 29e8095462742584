//! The memory in which a guest has its records: its RAM, or host memory mapped into its aperture.

use std::fmt;
use std::sync::Arc;

use causeway_memory::{MemoryError, PAGE_BYTES};
use causeway_protocol::Access;
use causeway_vmm::aperture::{Aperture, Lease, LeasedMemory};
use causeway_vmm::memory::GuestRam;

use crate::record::RecordError;

/// Finds the memory behind addresses in a guest's aperture. The product implements this by the
/// aperture, tests by a fake.
pub trait MappedMemory: Send + Sync {
    /// Returns the memory behind the `bytes` bytes at guest-physical `address`, which is not in
    /// RAM. Returns `None` if no single mapping in the aperture contains all of them.
    fn object(&self, address: u64, bytes: u64) -> Option<LeasedMemory>;

    /// Returns the memory behind the `bytes` bytes at `offset` in the aperture. Returns `None` if
    /// no single mapping contains all of them.
    fn placed(&self, offset: u64, bytes: u64) -> Option<LeasedMemory>;
}

impl MappedMemory for Aperture {
    fn object(&self, address: u64, bytes: u64) -> Option<LeasedMemory> {
        let offset = address.checked_sub(self.base()?)?;
        self.placed(offset, bytes)
    }

    fn placed(&self, offset: u64, bytes: u64) -> Option<LeasedMemory> {
        Self::object(self, offset, bytes)
    }
}

/// Where a record begins in a guest's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In RAM, at this guest-physical address.
    Ram(u64),
    /// In the aperture, at this offset.
    Aperture(u64),
}

/// All memory in which one guest can have records: its RAM and its aperture.
pub struct RecordMemory {
    ram: Arc<GuestRam>,
    mapped: Arc<dyn MappedMemory>,
}

impl fmt::Debug for RecordMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordMemory").finish_non_exhaustive()
    }
}

impl RecordMemory {
    /// Returns the memory of the guest with the RAM `ram` and the aperture `mapped`.
    pub fn new(ram: Arc<GuestRam>, mapped: Arc<dyn MappedMemory>) -> Self {
        Self { ram, mapped }
    }

    /// Returns the memory behind the `bytes` bytes at guest-physical `address`, in RAM or in the
    /// aperture.
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<LeasedMemory> {
        match self.ram.object(address, bytes) {
            Ok((memory, offset)) => Some(LeasedMemory {
                memory,
                offset,
                access: Access::ReadWrite,
                lease: Lease::default(),
            }),
            Err(_) => self.mapped.object(address, bytes),
        }
    }

    /// Copies bytes from `place`, once.
    pub(crate) fn read(&self, place: Place, into: &mut [u8]) -> Result<(), RecordError> {
        match place {
            Place::Ram(address) => Ok(self.ram.read(address, into)?),
            Place::Aperture(offset) => {
                let leased = self.placed(offset, into.len() as u64)?;
                let copied = leased.lease.during(|| read(&leased, into));
                done(copied, offset)
            }
        }
    }

    /// Copies a reply to `place`.
    pub(crate) fn reply(&self, place: Place, from: &[u8]) -> Result<(), RecordError> {
        match place {
            Place::Ram(address) => Ok(self.ram.write(address, from)?),
            Place::Aperture(offset) => {
                let leased = self.placed(offset, from.len() as u64)?;
                let copied = leased.lease.during(|| write(&leased, from));
                done(copied, offset)
            }
        }
    }

    /// Returns the memory behind a record. The guest must be allowed to write it, so that it is not
    /// another guest's.
    fn placed(&self, offset: u64, bytes: u64) -> Result<LeasedMemory, RecordError> {
        let placed = self.mapped.placed(offset, bytes);
        placed
            .filter(|leased| leased.access == Access::ReadWrite)
            .ok_or(RecordError::NotMapped { offset })
    }
}

/// Turns the result of a copy into a record's; `None` means that the mapping ended meanwhile.
fn done(copied: Option<Result<(), MemoryError>>, offset: u64) -> Result<(), RecordError> {
    match copied {
        Some(Ok(())) => Ok(()),
        Some(Err(e)) => {
            log::debug!("a record in the aperture: {e}");
            Err(RecordError::NotMapped { offset })
        }
        None => Err(RecordError::NotMapped { offset }),
    }
}

fn read(leased: &LeasedMemory, into: &mut [u8]) -> Result<(), MemoryError> {
    let bytes = into.len() as u64;
    let within = leased.offset % PAGE_BYTES;
    let start = leased.offset - within;
    let mapping = leased.memory.map(start, within + bytes, Access::Read)?;
    mapping
        .read(within, into)
        .map_err(|_| outside(leased, bytes))
}

fn write(leased: &LeasedMemory, from: &[u8]) -> Result<(), MemoryError> {
    let bytes = from.len() as u64;
    let within = leased.offset % PAGE_BYTES;
    let start = leased.offset - within;
    let mapping = leased
        .memory
        .map(start, within + bytes, Access::ReadWrite)?;
    mapping
        .write(within, from)
        .map_err(|_| outside(leased, bytes))
}

fn outside(leased: &LeasedMemory, bytes: u64) -> MemoryError {
    MemoryError::Range {
        offset: leased.offset,
        bytes,
        size: leased.memory.bytes(),
    }
}
