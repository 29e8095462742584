//! Host memory as allocations: a shared object, and the back end's own mapping of it.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use causeway_mediator::backend::{BackendError, Exported, Memory, Place};
use causeway_memory::{Backing, Mapping, MemoryError, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};

use crate::mapped::{Caching, MappedMemory};

/// Memory of the host that work can access: an allocation, guest RAM, or a range that another part
/// of the process has mapped. A new allocation is zero, and freed memory returns to the Linux
/// kernel, so no session sees what another has left in memory.
#[derive(Debug)]
pub struct HostMemory {
    shared: Option<(Arc<SharedMemory>, u64)>,
    mapping: Mapping,
    /// Keeps a borrowed mapping valid, or accounts for the memory. Dropped after the mapping.
    _owner: Option<Box<dyn Any + Send + Sync>>,
}

impl HostMemory {
    /// Allocates `bytes` bytes of zeroed memory in pages of size `pages`. Large pages get their
    /// memory at once, small pages when they are first accessed.
    ///
    /// # Errors
    /// [`MemoryError::Create`] if the Linux kernel cannot create the memory object,
    /// [`MemoryError::Map`] if it cannot map the object, [`MemoryError::Populate`] if too few pages
    /// are free.
    pub fn allocate(bytes: u64, pages: PageSize) -> Result<Self, MemoryError> {
        let shared = Arc::new(SharedMemory::new("causeway-allocation", bytes, pages)?);
        let large = shared.pages() == PageSize::Large;
        let memory = Self::register(shared, 0, bytes)?;
        if large {
            memory.mapping.populate()?;
        }
        Ok(memory)
    }

    /// Wraps memory that this process has already mapped, readable and writable. `owner` must keep
    /// the mapping valid until it is dropped, which happens when the memory is dropped.
    pub fn over(mapping: Mapping, owner: Box<dyn Any + Send + Sync>) -> Self {
        Self {
            shared: None,
            mapping,
            _owner: Some(owner),
        }
    }

    /// Maps `bytes` bytes of `shared`, beginning at byte `offset`, into this process.
    ///
    /// # Errors
    /// [`MemoryError`] if `shared` has no such range, or if the Linux kernel cannot map it.
    pub fn register(
        shared: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, MemoryError> {
        Ok(Self {
            mapping: shared.map(offset, bytes, Access::ReadWrite)?,
            shared: Some((shared, offset)),
            _owner: None,
        })
    }

    /// Attaches `charge`, which is dropped when the memory is freed. Its `Drop` can then subtract
    /// the memory from an account.
    #[must_use]
    pub fn charged(self, charge: impl Any + Send + Sync) -> Self {
        Self {
            _owner: Some(Box::new(charge)),
            ..self
        }
    }

    /// Returns this process's mapping of the memory.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl MappedMemory for HostMemory {
    fn base(&self) -> NonNull<u8> {
        self.mapping.as_ptr()
    }

    fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    fn caching(&self) -> Caching {
        Caching::Cached
    }
}

/// Makes a [`HostMemory`] available to the mediator, as a [`Memory`]. The host memory lives until
/// all handles of it are dropped.
#[derive(Debug)]
pub struct HostHandle {
    memory: Arc<HostMemory>,
    place: Place,
}

impl HostHandle {
    /// Wraps `memory` in a handle for the mediator, as memory that is at `place`: the host's memory
    /// stands for that of devices, too.
    pub fn share(memory: HostMemory, place: Place) -> Arc<dyn Memory> {
        Arc::new(Self {
            memory: Arc::new(memory),
            place,
        })
    }

    /// Allocates `bytes` bytes of zeroed memory in pages of size `pages`, and returns a handle of
    /// them.
    ///
    /// # Errors
    /// [`Status::NoMemory`] if the Linux kernel lacks memory, descriptors or addresses for the
    /// allocation.
    pub fn allocate(bytes: u64, pages: PageSize) -> Result<Arc<dyn Memory>, BackendError> {
        let memory = HostMemory::allocate(bytes, pages);
        let memory =
            memory.map_err(|e| refused(Status::NoMemory, format!("allocate {bytes} bytes"), e));
        Ok(Self::share(memory?, Place::Host))
    }

    /// Maps `bytes` bytes of the guest RAM `ram`, beginning at byte `offset`, and returns a handle
    /// of them.
    ///
    /// # Errors
    /// [`Status::NoMemory`] if `ram` has no such range, or if the Linux kernel cannot map it.
    pub fn register(
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let memory = HostMemory::register(ram, offset, bytes).map_err(|e| {
            let context = format!("register {bytes} bytes of guest RAM");
            refused(Status::NoMemory, context, e)
        })?;
        Ok(Self::share(memory, Place::Host))
    }

    /// Maps host memory that another process exported, and returns a handle of it. The memory stays
    /// charged to the exporter.
    ///
    /// # Errors
    /// [`Status::BadMemory`] if the descriptor is not shared memory, or if the memory has no such
    /// range.
    pub fn import(exported: Exported) -> Result<Arc<dyn Memory>, BackendError> {
        let Exported { bytes, offset, .. } = exported;
        let not_memory = |e| {
            let context = format!("import {bytes} bytes from {offset:#x}");
            refused(Status::BadMemory, context, e)
        };
        let shared = SharedMemory::adopt(exported.file, exported.pages).map_err(not_memory)?;
        let memory = HostMemory::register(Arc::new(shared), offset, bytes).map_err(not_memory)?;
        Ok(Self::share(memory, exported.place))
    }

    /// Returns the host memory behind `handle`; `None` if `handle` is not a [`HostHandle`].
    pub fn memory_of(handle: &Arc<dyn Memory>) -> Option<Arc<HostMemory>> {
        let handle = handle.as_any().downcast_ref::<Self>()?;
        Some(Arc::clone(&handle.memory))
    }
}

fn refused(status: Status, context: String, source: MemoryError) -> BackendError {
    BackendError::new(status, context).because(source)
}

impl Memory for HostHandle {
    fn bytes(&self) -> u64 {
        self.memory.mapping.bytes()
    }

    fn backing(&self) -> Option<Backing> {
        let (memory, offset) = self.memory.shared.as_ref()?;
        Some(Backing::Host {
            memory: Arc::clone(memory),
            offset: *offset,
        })
    }

    fn place(&self) -> Place {
        self.place
    }

    fn export(&self) -> Result<Exported, BackendError> {
        let (shared, offset) = self.memory.shared.as_ref().ok_or_else(|| {
            BackendError::new(
                Status::Unsupported,
                "export memory that another part of the process has mapped",
            )
        })?;
        let file = shared.file().try_clone_to_owned();
        Ok(Exported {
            kind: MemoryKind::Host,
            bytes: self.bytes(),
            file: file.map_err(|e| {
                let what = "duplicate the descriptor of an allocation";
                BackendError::new(Status::NoMemory, what).because(e)
            })?,
            offset: *offset,
            pages: shared.pages(),
            place: self.place,
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_memory_is_zero_and_shared() {
        let memory = HostMemory::allocate(65536, PageSize::Small).unwrap();
        let (shared, _) = memory.shared.as_ref().unwrap();
        let other = shared.map(0, 65536, Access::ReadWrite);
        other.unwrap().write(4096, b"seen").unwrap();
        let mut bytes = [1; 8];
        memory.mapping().read(4096, &mut bytes).unwrap();
        assert_eq!(&bytes, b"seen\0\0\0\0");
    }
}
