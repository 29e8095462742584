//! Memory of the fake back end, and its mappings in an address space.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use causeway_mediator::backend::{BackendError, Exported, FabricBytes, Fault, Memory, Place};
use causeway_memory::{Backing, Mapping, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use parking_lot::Mutex;

use crate::failures::error;
use crate::live::Alive;

/// `CUDA_ERROR_ILLEGAL_ADDRESS`
const ILLEGAL_ADDRESS: u32 = 700;

/// An allocation, an import or registered guest RAM.
pub(crate) struct FakeMemory {
    pub shared: Arc<SharedMemory>,
    pub offset: u64,
    pub bytes: u64,
    pub mapping: Mapping,
    pub fabric: Option<FabricBytes>,
    pub place: Place,
    pub _alive: Alive,
}

impl Memory for FakeMemory {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn backing(&self) -> Option<Backing> {
        Some(Backing::Host {
            memory: Arc::clone(&self.shared),
            offset: self.offset,
        })
    }

    fn place(&self) -> Place {
        self.place
    }

    fn export(&self) -> Result<Exported, BackendError> {
        let file = self.shared.file().try_clone_to_owned();
        Ok(Exported {
            kind: MemoryKind::Host,
            bytes: self.bytes,
            file: file.map_err(|e| error(Status::NoMemory, &e.to_string()))?,
            offset: self.offset,
            pages: self.shared.pages(),
            place: Place::Own,
        })
    }

    fn fabric_handle(&self) -> Result<FabricBytes, BackendError> {
        let refused = || error(Status::BadMemory, "was allocated without a fabric handle");
        self.fabric.ok_or_else(refused)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A GPU mapping of a range of memory.
pub(crate) struct FakeMapping {
    pub memory: Arc<dyn Memory>,
    pub offset: u64,
    pub bytes: u64,
    pub access: Access,
}

/// The memory that work in one address space reaches.
pub(crate) struct SpaceMemory {
    pub stop: Arc<AtomicBool>,
    pub mappings: Mutex<BTreeMap<u64, FakeMapping>>,
    pub begun: Instant,
    pub _alive: Alive,
}

impl SpaceMemory {
    /// Calls `touch` for each piece of `[va, va + bytes)` with the mapping, the offset in it, and
    /// the piece. Only copies reach what is apart.
    fn pieces(
        &self,
        (va, bytes): (u64, usize),
        wanted: Access,
        is_copy: bool,
        mut touch: impl FnMut(&Mapping, u64, std::ops::Range<usize>) -> bool,
    ) -> Result<(), Fault> {
        let mappings = self.mappings.lock();
        let mut done = 0;
        while done < bytes {
            let at = va.wrapping_add(done as u64);
            let found = mappings.range(..=at).next_back();
            let piece = found.and_then(|(start, mapping)| {
                let inside = at - start;
                let left = mapping
                    .bytes
                    .checked_sub(inside)
                    .filter(|left| *left != 0)?;
                let memory = mapping.memory.as_any().downcast_ref::<FakeMemory>()?;
                let end = bytes.min(done + usize::try_from(left).unwrap_or(usize::MAX));
                let is_apart = matches!(mapping.memory.place(), Place::Apart { .. });
                let allowed = mapping.access.allows(wanted) && (is_copy || !is_apart);
                (allowed && touch(&memory.mapping, mapping.offset + inside, done..end))
                    .then_some(end)
            });
            done = piece.ok_or_else(|| {
                let text = format!("{wanted:?} of GPU address {at:#x}");
                Fault::new(Status::MemoryFault, text).with_cuda_result(ILLEGAL_ADDRESS)
            })?;
        }
        Ok(())
    }

    pub fn read(&self, va: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.load(va, into, false)
    }

    pub fn write(&self, va: u64, from: &[u8]) -> Result<(), Fault> {
        self.store(va, from, false)
    }

    fn load(&self, va: u64, into: &mut [u8], is_copy: bool) -> Result<(), Fault> {
        let range = (va, into.len());
        self.pieces(range, Access::Read, is_copy, |mapping, offset, piece| {
            mapping.read(offset, &mut into[piece]).is_ok()
        })
    }

    fn store(&self, va: u64, from: &[u8], is_copy: bool) -> Result<(), Fault> {
        let range = (va, from.len());
        self.pieces(
            range,
            Access::ReadWrite,
            is_copy,
            |mapping, offset, piece| mapping.write(offset, &from[piece]).is_ok(),
        )
    }

    pub fn copy(&self, destination: u64, source: u64, bytes: u64) -> Result<(), Fault> {
        let mut buffer = [0; 4096];
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(4096) as usize;
            self.load(source + done, &mut buffer[..piece], true)?;
            self.store(destination + done, &buffer[..piece], true)?;
            done += piece as u64;
        }
        Ok(())
    }

    pub fn fill(
        &self,
        destination: u64,
        bytes: u64,
        pattern: u32,
        width: u32,
    ) -> Result<(), Fault> {
        let mut buffer = [0; 4096];
        let pattern = &pattern.to_le_bytes()[..width as usize];
        for (to, from) in buffer.iter_mut().zip(pattern.iter().cycle()) {
            *to = *from;
        }
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(4096) as usize;
            self.write(destination + done, &buffer[..piece])?;
            done += piece as u64;
        }
        Ok(())
    }
}
