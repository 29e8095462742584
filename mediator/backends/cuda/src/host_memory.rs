//! Host memory that the GPU reaches: allocations, imports, and guest RAM.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use causeway_mediator::backend::{BackendError, Exported, Memory};
use causeway_memory::{Backing, MemoryError, PAGE_BYTES, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use parking_lot::Mutex;

use crate::driver::{Context, Registration};
use crate::gpu::Gpu;
use crate::host_registration::{HostView, check_support, register, register_mapping};

/// Largest allocation that is kept for reuse, in bytes: a larger one is scrubbed faster by the
/// kernel's giving fresh pages.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Zeros to scrub with.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A registered object, kept for reuse as a whole.
pub(crate) struct HostChunk {
    shared: Arc<SharedMemory>,
    registration: Arc<Registration>,
}

/// Host memory.
pub(crate) struct HostMemory {
    gpu: Weak<Gpu>,
    shared: Arc<SharedMemory>,
    offset: u64,
    bytes: u64,
    /// Made by this back end, and so to be scrubbed and reused.
    own: bool,
    exported: AtomicBool,
    /// The registration with all rights. For imports only made when somebody who may write asks for
    /// it.
    main: Mutex<Option<HostView>>,
}

impl HostMemory {
    /// `bytes` bytes of zeros, populated and registered.
    pub(crate) fn allocate(gpu: &Arc<Gpu>, bytes: u64) -> Result<Self, BackendError> {
        check_support(&gpu.support)?;
        let chunk = match gpu.host_chunks.take(bytes, |_| true) {
            Some(chunk) => chunk,
            None => HostChunk::create(gpu, bytes)?,
        };
        let main = HostView {
            registration: chunk.registration,
            offset: 0,
        };
        let mut memory = Self::unregistered(gpu, chunk.shared, 0, bytes);
        memory.own = true;
        memory.main = Mutex::new(Some(main));
        Ok(memory)
    }

    /// Returns an object of another process.
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
        Ok(Self::unregistered(gpu, Arc::new(shared), offset, bytes))
    }

    /// Returns a range of guest RAM, which is registered as `view`.
    pub(crate) fn guest_ram(
        gpu: &Arc<Gpu>,
        ram: Arc<SharedMemory>,
        (offset, bytes): (u64, u64),
        view: HostView,
    ) -> Self {
        let mut memory = Self::unregistered(gpu, ram, offset, bytes);
        memory.main = Mutex::new(Some(view));
        memory
    }

    fn unregistered(gpu: &Arc<Gpu>, shared: Arc<SharedMemory>, offset: u64, bytes: u64) -> Self {
        Self {
            gpu: Arc::downgrade(gpu),
            shared,
            offset,
            bytes,
            own: false,
            exported: AtomicBool::new(false),
            main: Mutex::new(None),
        }
    }

    /// Returns the registration with all rights.
    pub(crate) fn main(&self, context: &Arc<Context>) -> Result<HostView, BackendError> {
        let mut main = self.main.lock();
        if let Some(view) = &*main {
            return Ok(view.clone());
        }
        let registration = self.register(context, 0, self.bytes, Access::ReadWrite)?;
        let view = HostView {
            registration: Arc::new(registration),
            offset: 0,
        };
        Ok(main.insert(view).clone())
    }

    /// Returns a registration of its own for a range.
    pub(crate) fn register(
        &self,
        context: &Arc<Context>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Registration, BackendError> {
        register(context, &self.shared, (self.offset + offset, bytes), access)
    }

    /// Returns whether it belongs to this GPU.
    pub(crate) fn is_of(&self, gpu: &Arc<Gpu>) -> bool {
        std::ptr::eq(self.gpu.as_ptr(), Arc::as_ptr(gpu))
    }

    /// Returns the object with its registration, if neither is used elsewhere.
    fn reusable(&mut self) -> Option<HostChunk> {
        let view = self.main.get_mut().take()?;
        let exported = *self.exported.get_mut() || self.shared.is_handed_out();
        let alone =
            Arc::strong_count(&self.shared) == 1 && Arc::strong_count(&view.registration) == 1;
        (self.own && !exported && alone).then(|| HostChunk {
            shared: Arc::clone(&self.shared),
            registration: view.registration,
        })
    }
}

impl HostChunk {
    fn create(gpu: &Gpu, bytes: u64) -> Result<Self, BackendError> {
        let what = || format!("allocate {bytes} bytes of host memory");
        let no_memory = |e: MemoryError| BackendError::new(Status::NoMemory, what()).because(e);
        let shared = SharedMemory::new("causeway-host", bytes, gpu.host_pages);
        let shared = Arc::new(shared.map_err(no_memory)?);
        let mapping = shared.map(0, bytes, Access::ReadWrite).map_err(no_memory)?;
        mapping.populate().map_err(no_memory)?;
        let registration = register_mapping(&gpu.home, mapping, Access::ReadWrite, what)?;
        Ok(Self {
            shared,
            registration: Arc::new(registration),
        })
    }

    fn scrub(&self) -> bool {
        let mapping = self.registration.mapping();
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
