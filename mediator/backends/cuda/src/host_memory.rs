//! Host memory that the GPU reaches: allocations, imports, and guest RAM.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use causeway_mediator::backend::{BackendError, Exported, Memory, Place};
use causeway_memory::{Backing, MemoryError, PAGE_BYTES, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use parking_lot::Mutex;

use crate::gpu::Gpu;
use crate::host_registration::{
    HostView, check_support, register_again, register_at, register_mapping,
};

/// Largest allocation that is kept for reuse, in bytes. For a larger one, fresh pages from the
/// kernel take less time than scrubbing.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Zeros that scrubbing copies into memory.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A memory object that is registered with the GPU as a whole, and may be kept for reuse.
pub(crate) struct HostChunk {
    shared: Arc<SharedMemory>,
    view: HostView,
}

/// Host memory that the GPU can access: an allocation, an import, or a range of guest RAM.
pub(crate) struct HostMemory {
    gpu: Weak<Gpu>,
    shared: Arc<SharedMemory>,
    offset: u64,
    bytes: u64,
    /// Whether this back end allocated the memory, so that it may be scrubbed and reused.
    own: bool,
    exported: AtomicBool,
    /// The registration for reading and writing. For an import, it is made by the first mapping
    /// that may write.
    main: Mutex<Option<HostView>>,
}

impl HostMemory {
    /// Allocates `bytes` bytes of zeros, with all pages present, and registers them with the GPU.
    ///
    /// # Errors
    /// `Unsupported` if the GPU cannot use host memory, `NoMemory` if the host has too little
    /// memory or the driver cannot lock so much.
    pub(crate) fn allocate(gpu: &Arc<Gpu>, bytes: u64) -> Result<Self, BackendError> {
        check_support(&gpu.support)?;
        let chunk = match gpu.host_chunks.take(bytes, |_| true) {
            Some(chunk) => chunk,
            None => HostChunk::create(gpu, bytes)?,
        };
        let mut memory = Self::new(gpu, chunk.shared, (0, bytes), Some(chunk.view));
        memory.own = true;
        Ok(memory)
    }

    /// Imports host memory that another process exported.
    ///
    /// # Errors
    /// `Unsupported` if the GPU cannot use host memory, `BadMemory` if the descriptor is not a
    /// memory object that contains the range which `exported` states.
    pub(crate) fn import(gpu: &Arc<Gpu>, exported: Exported) -> Result<Self, BackendError> {
        check_support(&gpu.support)?;
        let Exported { bytes, offset, .. } = exported;
        let what = || format!("import {bytes} bytes of host memory from {offset:#x}");
        let refused = |e: MemoryError| BackendError::new(Status::BadMemory, what()).because(e);
        let shared = SharedMemory::adopt(exported.file, exported.pages).map_err(refused)?;
        let size = shared.bytes();
        match offset.checked_add(bytes) {
            Some(end) if end <= size && bytes != 0 && (offset | bytes) % PAGE_BYTES == 0 => {}
            _ => {
                return Err(refused(MemoryError::Range {
                    offset,
                    bytes,
                    size,
                }));
            }
        }
        Ok(Self::new(gpu, Arc::new(shared), (offset, bytes), None))
    }

    /// Returns a range (offset and bytes) of the object `shared`, which this back end did not
    /// allocate. `main` is the range as registered memory, if it is registered already.
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        shared: Arc<SharedMemory>,
        (offset, bytes): (u64, u64),
        main: Option<HostView>,
    ) -> Self {
        Self {
            gpu: Arc::downgrade(gpu),
            shared,
            offset,
            bytes,
            own: false,
            exported: AtomicBool::new(false),
            main: Mutex::new(main),
        }
    }

    /// Returns the registration of the whole memory for reading and writing, which the first call
    /// makes.
    pub(crate) fn main(&self, gpu: &Gpu) -> Result<HostView, BackendError> {
        let mut main = self.main.lock();
        if let Some(view) = &*main {
            return Ok(view.clone());
        }
        let view = self.register(gpu, 0, self.bytes, Access::ReadWrite)?;
        Ok(main.insert(view).clone())
    }

    /// Registers `bytes` bytes from `offset` of this memory once more, with the rights `access`.
    pub(crate) fn register(
        &self,
        gpu: &Gpu,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<HostView, BackendError> {
        register_again(
            gpu.registrar(),
            &self.shared,
            (self.offset + offset, bytes),
            access,
        )
    }

    /// Does what [`Self::register`] does, at `address` for CPU and GPU.
    ///
    /// # Errors
    /// As for [`register_at`].
    pub(crate) fn register_at(
        &self,
        gpu: &Gpu,
        address: u64,
        (offset, bytes): (u64, u64),
        access: Access,
    ) -> Result<HostView, BackendError> {
        let range = (self.offset + offset, bytes);
        register_at(gpu.registrar(), address, &self.shared, range, access)
    }

    /// Returns whether the memory was allocated, imported or registered with `gpu`.
    pub(crate) fn is_of(&self, gpu: &Arc<Gpu>) -> bool {
        std::ptr::eq(self.gpu.as_ptr(), Arc::as_ptr(gpu))
    }

    /// Returns the memory object with its registration, if nothing else uses either.
    fn reusable(&mut self) -> Option<HostChunk> {
        let view = self.main.get_mut().take()?;
        let exported = *self.exported.get_mut() || self.shared.is_handed_out();
        let alone =
            Arc::strong_count(&self.shared) == 1 && Arc::strong_count(&view.registration) == 1;
        (self.own && !exported && alone).then(|| HostChunk {
            shared: Arc::clone(&self.shared),
            view,
        })
    }
}

impl HostChunk {
    fn create(gpu: &Gpu, bytes: u64) -> Result<Self, BackendError> {
        let what = || format!("allocate {bytes} bytes of host memory");
        let no_memory = |e: MemoryError| BackendError::new(Status::NoMemory, what()).because(e);
        let shared = SharedMemory::new("causeway-host", bytes, gpu.config.host_pages);
        let shared = Arc::new(shared.map_err(no_memory)?);
        let mapping = shared.map(0, bytes, Access::ReadWrite).map_err(no_memory)?;
        mapping.populate().map_err(no_memory)?;
        let view = register_mapping(&gpu.home, mapping, Access::ReadWrite, what)?;
        Ok(Self { shared, view })
    }

    fn scrub(&self) -> bool {
        let mapping = self.view.registration.mapping();
        let step = ZEROS.len() as u64;
        (0..mapping.bytes()).step_by(ZEROS.len()).all(|offset| {
            let bytes = step.min(mapping.bytes() - offset) as usize;
            mapping.write(offset, &ZEROS[..bytes]).is_ok()
        })
    }
}

impl Memory for HostMemory {
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
        Place::Host
    }

    fn export(&self) -> Result<Exported, BackendError> {
        let file = self.shared.file().try_clone_to_owned();
        let file = file.map_err(|e| {
            BackendError::new(Status::NoMemory, "duplicate the descriptor of host memory")
                .because(e)
        })?;
        self.exported.store(true, Ordering::SeqCst);
        Ok(Exported {
            kind: MemoryKind::Host,
            bytes: self.bytes,
            file,
            offset: self.offset,
            pages: self.shared.pages(),
            place: Place::Host,
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let Some(gpu) = self.gpu.upgrade() else {
            return;
        };
        let bytes = self.bytes;
        if gpu.home.is_poisoned() || bytes > KEPT_BYTES_MAX || !gpu.host_chunks.has_room(bytes) {
            return;
        }
        if let Some(chunk) = self.reusable()
            && chunk.scrub()
        {
            drop(gpu.host_chunks.put(bytes, chunk));
        }
    }
}
