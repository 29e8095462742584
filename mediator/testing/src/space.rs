//! Address spaces of the fake back end.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use causeway_memory::Mapping;
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use super::backend::{Alive, Counts, Failures, FakeKernel, FakeMemory, check_failure, error, lock};
use super::behind::Behind;
use super::work::{FakeFunction, FakeModule, FakeQueue, FakeRecording};
use crate::backend::{
    BackendError, Fault, Memory, Module, ModuleError, Queue, Recorded, Recording, Space,
};
use crate::va::VaAllocator;

pub(super) struct FakeMapping {
    memory: Arc<dyn Memory>,
    offset: u64,
    bytes: u64,
    access: Access,
}

#[derive(Clone)]
pub(super) struct FakeSpace {
    pub stop: Arc<AtomicBool>,
    pub mappings: Arc<Mutex<BTreeMap<u64, FakeMapping>>>,
    pub va: Arc<Mutex<VaAllocator>>,
    pub kernels: HashMap<String, FakeKernel>,
    pub counts: Counts,
    pub failures: Failures,
    pub begun: Instant,
    pub behind: Arc<Behind>,
    pub _alive: Arc<Alive>,
}

impl FakeSpace {
    /// Calls `touch` for each piece of `[va, va + bytes)` with the mapping, the offset in it, and the piece.
    fn pieces(
        &self,
        va: u64,
        bytes: usize,
        wanted: Access,
        mut touch: impl FnMut(&Mapping, u64, std::ops::Range<usize>) -> bool,
    ) -> Result<(), Fault> {
        let mappings = lock(&self.mappings);
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
                let allowed = mapping.access.allows(wanted);
                (allowed && touch(&memory.mapping, mapping.offset + inside, done..end))
                    .then_some(end)
            });
            done = piece.ok_or_else(|| Fault {
                status: Status::MemoryFault,
                text: format!("{wanted:?} of GPU address {at:#x}"),
            })?;
        }
        Ok(())
    }

    pub fn read(&self, va: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.pieces(va, into.len(), Access::Read, |mapping, offset, piece| {
            mapping.read(offset, &mut into[piece]).is_ok()
        })
    }

    pub fn write(&self, va: u64, from: &[u8]) -> Result<(), Fault> {
        self.pieces(
            va,
            from.len(),
            Access::ReadWrite,
            |mapping, offset, piece| mapping.write(offset, &from[piece]).is_ok(),
        )
    }

    pub fn copy(&self, destination: u64, source: u64, bytes: u64) -> Result<(), Fault> {
        let mut buffer = [0; 4096];
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(4096) as usize;
            self.read(source + done, &mut buffer[..piece])?;
            self.write(destination + done, &buffer[..piece])?;
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

impl Space for FakeSpace {
    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError> {
        check_failure(&self.failures, "map")?;
        let va = lock(&self.va).place(wanted, bytes)?;
        let mapping = FakeMapping {
            memory: Arc::clone(memory),
            offset,
            bytes,
            access,
        };
        match lock(&self.mappings).insert(va, mapping) {
            None => Ok(va),
            Some(_) => Err(error(Status::BackEnd, "mapped twice")),
        }
    }

    fn unmap(&self, va: u64) -> Result<(), BackendError> {
        check_failure(&self.failures, "unmap")?;
        let removed = lock(&self.mappings).remove(&va);
        let mapping = removed.ok_or(error(Status::BackEnd, "not mapped"))?;
        lock(&self.va).give(va, mapping.bytes);
        Ok(())
    }

    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        let mut mappings = lock(&self.mappings);
        let mapping = mappings.get_mut(&va);
        mapping.ok_or(error(Status::BackEnd, "not mapped"))?.access = access;
        Ok(())
    }

    fn load_module(&self, image: &[u8]) -> Result<Arc<dyn Module>, ModuleError> {
        let text = String::from_utf8_lossy(image);
        let mut kernels = HashMap::new();
        let mut memory_bytes = 0;
        for (index, line) in text.trim_end_matches('\0').lines().enumerate() {
            let refuse = |reason: &str| ModuleError {
                line: index as u32 + 1,
                reason: reason.to_owned(),
            };
            if let Some(bytes) = line.strip_prefix("variables ") {
                memory_bytes = bytes.parse().map_err(|_| refuse("not a number"))?;
                continue;
            }
            let name = line.strip_prefix("kernel ");
            let name = name.ok_or_else(|| refuse("not a line of a fake module"))?;
            let kernel = self.kernels.get(name);
            let kernel = kernel.ok_or_else(|| refuse("the test has not defined this kernel"))?;
            kernels.insert(name.to_owned(), FakeFunction::boxed(kernel.clone()));
        }
        lock(&self.counts).modules += 1;
        Ok(Arc::new(FakeModule {
            kernels,
            memory_bytes,
            _alive: Alive {
                counts: Arc::clone(&self.counts),
                gone: |live| live.modules -= 1,
            },
        }))
    }

    fn create_queue(&self) -> Result<Box<dyn Queue>, BackendError> {
        check_failure(&self.failures, "create_queue")?;
        lock(&self.counts).queues += 1;
        Ok(Box::new(FakeQueue {
            backlog: self.behind.backlog(self.clone()),
            failures: Arc::clone(&self.failures),
            _alive: Alive {
                counts: Arc::clone(&self.counts),
                gone: |live| live.queues -= 1,
            },
        }))
    }

    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError> {
        check_failure(&self.failures, "record")?;
        lock(&self.counts).recordings += 1;
        Ok(Arc::new(FakeRecording {
            work: work.to_vec(),
            _alive: Alive {
                counts: Arc::clone(&self.counts),
                gone: |live| live.recordings -= 1,
            },
        }))
    }

    fn load_u64(&self, va: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(va, &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}
