//! Where a guest has its records: in its RAM, or in host memory that it has in the aperture.

use causeway_memory::{MemoryError, PAGE_BYTES};
use causeway_protocol::Access;

use super::{Harness, RecordError};
use crate::aperture::Leased;

/// Where a record begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// At a guest-physical address.
    Ram(u64),
    /// At an offset into the aperture.
    Aperture(u64),
}

impl Harness {
    /// Copies bytes out, once.
    pub(super) fn read(&self, place: Place, into: &mut [u8]) -> Result<(), RecordError> {
        match place {
            Place::Ram(address) => Ok(self.ram.read(address, into)?),
            Place::Aperture(offset) => {
                let leased = self.placed(offset, into.len() as u64)?;
                let copied = leased.lease.during(|| read(&leased, into));
                done(copied, offset)
            }
        }
    }

    /// Copies a reply to where the record is.
    pub(super) fn reply(&self, place: Place, from: &[u8]) -> Result<(), RecordError> {
        match place {
            Place::Ram(address) => Ok(self.ram.write(address, from)?),
            Place::Aperture(offset) => {
                let leased = self.placed(offset, from.len() as u64)?;
                let copied = leased.lease.during(|| write(&leased, from));
                done(copied, offset)
            }
        }
    }

    /// The memory behind a record, which the guest must be able to write: so it is not another guest's.
    fn placed(&self, offset: u64, bytes: u64) -> Result<Leased, RecordError> {
        let placed = self.mapped.placed(offset, bytes);
        placed
            .filter(|leased| leased.access == Access::ReadWrite)
            .ok_or(RecordError::NotMapped { offset })
    }
}

/// What became of a copy; nothing, if the mapping ended meanwhile.
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

fn read(leased: &Leased, into: &mut [u8]) -> Result<(), MemoryError> {
    let bytes = into.len() as u64;
    let within = leased.offset % PAGE_BYTES;
    let start = leased.offset - within;
    let mapping = leased.memory.map(start, within + bytes, Access::Read)?;
    mapping
        .read(within, into)
        .map_err(|_| outside(leased, bytes))
}

fn write(leased: &Leased, from: &[u8]) -> Result<(), MemoryError> {
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

fn outside(leased: &Leased, bytes: u64) -> MemoryError {
    MemoryError::Range {
        offset: leased.offset,
        bytes,
        size: leased.memory.bytes(),
    }
}
