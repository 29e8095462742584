//! Memory of allocations: a shared object, and the back end's own mapping of it.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::backend::{BackendError, Exported, Memory};
use causeway_memory::{Backing, LARGE_PAGE_BYTES, Mapping, MemoryError, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};

/// An allocation, registered guest RAM, or a range that somebody else has mapped. Fresh memory is zero because the kernel
/// gives it that way; freed memory goes back to the kernel, so nobody ever sees what another left behind.
#[derive(Debug)]
pub(crate) struct SoftwareMemory {
    shared: Option<(Arc<SharedMemory>, u64)>,
    mapping: Mapping,
    _charge: Option<Charge>,
    /// Dropped after the mapping.
    _owner: Option<Owner>,
}

/// Whatever keeps a borrowed mapping valid.
struct Owner(#[allow(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>);

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Owner")
    }
}

impl SoftwareMemory {
    /// Fresh memory, with pages behind it where they are large.
    pub(crate) fn allocate(bytes: u64) -> Result<Self, MemoryError> {
        let large = bytes >= LARGE_PAGE_BYTES;
        let pages = if large {
            PageSize::Large
        } else {
            PageSize::Small
        };
        let shared = Arc::new(SharedMemory::new("causeway-allocation", bytes, pages)?);
        let mapping = shared.map(0, bytes, Access::ReadWrite)?;
        if large && shared.pages() == PageSize::Large {
            mapping.populate()?;
        }
        Ok(Self::of(shared, 0, mapping))
    }

    fn of(shared: Arc<SharedMemory>, offset: u64, mapping: Mapping) -> Self {
        Self {
            shared: Some((shared, offset)),
            mapping,
            _charge: None,
            _owner: None,
        }
    }

    /// Memory that is mapped already, and stays so as long as `owner` lives.
    pub(crate) fn over(mapping: Mapping, owner: Box<dyn Any + Send + Sync>) -> Self {
        Self {
            shared: None,
            mapping,
            _charge: None,
            _owner: Some(Owner(owner)),
        }
    }

    /// Memory that exists already.
    pub(crate) fn register(
        shared: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, MemoryError> {
        let mapping = shared.map(offset, bytes, Access::ReadWrite)?;
        Ok(Self::of(shared, offset, mapping))
    }

    /// The same, accounted for as long as it lives.
    pub(crate) fn charged(self, charge: Charge) -> Self {
        Self {
            _charge: Some(charge),
            ..self
        }
    }

    /// This process's view of it.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

/// What sessions hold: a share of the memory, which lives as long as anyone has one.
pub(crate) struct MemoryHandle(Arc<SoftwareMemory>);

impl MemoryHandle {
    /// A handle, as the mediator wants it.
    pub(crate) fn share(memory: SoftwareMemory) -> Arc<dyn Memory> {
        Arc::new(Self(Arc::new(memory)))
    }

    /// The memory behind a handle, if it is one of this back end.
    pub(crate) fn memory_of(handle: &Arc<dyn Memory>) -> Option<Arc<SoftwareMemory>> {
        let handle = handle.as_any().downcast_ref::<Self>()?;
        Some(Arc::clone(&handle.0))
    }
}

impl Memory for MemoryHandle {
    fn bytes(&self) -> u64 {
        self.0.mapping.bytes()
    }

    fn backing(&self) -> Option<Backing> {
        let (memory, offset) = self.0.shared.as_ref()?;
        Some(Backing::Host {
            memory: Arc::clone(memory),
            offset: *offset,
        })
    }

    /// All kinds are the host's memory here.
    fn export(&self) -> Result<Exported, BackendError> {
        let failed = |status, context: &str| BackendError {
            status,
            context: context.to_owned(),
            source: None,
        };
        let (shared, offset) = self.0.shared.as_ref().ok_or_else(|| {
            failed(
                Status::Unsupported,
                "export memory that somebody else has mapped",
            )
        })?;
        let file = shared.file().try_clone_to_owned();
        Ok(Exported {
            kind: MemoryKind::Host,
            bytes: self.bytes(),
            file: file.map_err(|e| BackendError {
                source: Some(Box::new(e)),
                ..failed(
                    Status::NoMemory,
                    "duplicate the descriptor of an allocation",
                )
            })?,
            offset: *offset,
            pages: shared.pages(),
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Bytes of the device that allocations may still take.
#[derive(Debug)]
pub(crate) struct Pool {
    free: AtomicU64,
}

impl Pool {
    /// A pool of `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            free: AtomicU64::new(bytes),
        })
    }

    /// Bytes nobody has taken.
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes `bytes` bytes until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(bytes)
            })
            .ok()?;
        Some(Charge {
            pool: Arc::clone(self),
            bytes,
        })
    }
}

/// Bytes taken from a [`Pool`].
#[derive(Debug)]
pub(crate) struct Charge {
    pool: Arc<Pool>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.pool.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_comes_back() {
        let pool = Pool::new(100);
        let charge = pool.charge(60).unwrap();
        assert!(pool.charge(41).is_none());
        drop(charge);
        assert_eq!(pool.free(), 100);
    }

    #[test]
    fn fresh_memory_is_zero_and_shared() {
        let memory = SoftwareMemory::allocate(65536).unwrap();
        let (shared, _) = memory.shared.as_ref().unwrap();
        let other = shared.map(0, 65536, Access::ReadWrite);
        other.unwrap().write(4096, b"seen").unwrap();
        let mut bytes = [1; 8];
        memory.mapping().read(4096, &mut bytes).unwrap();
        assert_eq!(&bytes, b"seen\0\0\0\0");
    }
}
