//! Host memory that the GPU reaches: allocations, imports, and guest RAM.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use causeway_mediator::backend::{BackendError, Exported, Memory};
use causeway_memory::{Backing, MemoryError, PAGE_BYTES, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};

use crate::device_memory::lacks;
use crate::driver::{Context, Registration, RegistrationError};
use crate::gpu::Gpu;
use crate::support::Attribute;

/// Largest allocation that is kept for reuse, in bytes: a larger one is scrubbed faster by the kernel's giving fresh pages.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Zeros to scrub with.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A registered object, kept for reuse as a whole.
pub(crate) struct HostChunk {
    shared: Arc<SharedMemory>,
    registration: Arc<Registration>,
}

/// A registration, and where in it some memory begins.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) registration: Arc<Registration>,
    /// Bytes from its beginning.
    pub(crate) offset: u64,
}

impl View {
    /// The GPU address at which the memory begins.
    pub(crate) fn address(&self) -> u64 {
        self.registration.address() + self.offset
    }
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
    /// The registration with all rights. For imports only made when somebody who may write asks for it.
    main: Mutex<Option<View>>,
}

/// Maps a range of an object, and registers it.
pub(crate) fn register(
    context: &Arc<Context>,
    shared: &SharedMemory,
    range: (u64, u64),
    access: Access,
) -> Result<Registration, BackendError> {
    let (offset, bytes) = range;
    let what = || format!("register {bytes} bytes of host memory from {offset:#x}");
    let mapping = shared
        .map(offset, bytes, access)
        .map_err(|e| BackendError {
            status: Status::NoMemory,
            context: what(),
            source: Some(Box::new(e)),
        })?;
    let read_only = access != Access::ReadWrite;
    Registration::new(context, mapping, read_only).map_err(|e| unregistered(what(), e))
}

/// A registration that failed, with what may be done about it.
pub(crate) fn unregistered(context: String, source: RegistrationError) -> BackendError {
    BackendError {
        status: Status::NoMemory,
        context: format!(
            "{context}: the driver locks such memory, and {} may be locked (ulimit -l), or the host has too little left",
            locked_limit()
        ),
        source: Some(Box::new(source)),
    }
}

/// Refuses host memory where it cannot be registered.
pub(crate) fn check_support(gpu: &Gpu) -> Result<(), BackendError> {
    if gpu.support.has(Attribute::HostRegister) {
        Ok(())
    } else {
        Err(lacks(Attribute::HostRegister))
    }
}

/// `RLIMIT_MEMLOCK` in words.
fn locked_limit() -> String {
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => String::from("any number of bytes"),
    }
}

impl HostMemory {
    /// `bytes` bytes of zeros, populated and registered.
    pub(crate) fn allocate(gpu: &Arc<Gpu>, bytes: u64) -> Result<Self, BackendError> {
        check_support(gpu)?;
        let chunk = match gpu.host_chunks.take(bytes, |_| true) {
            Some(chunk) => chunk,
            None => HostChunk::create(gpu, bytes)?,
        };
        let main = View {
            registration: chunk.registration,
            offset: 0,
        };
        let mut memory = Self::unregistered(gpu, chunk.shared, 0, bytes);
        memory.own = true;
        memory.main = Mutex::new(Some(main));
        Ok(memory)
    }

    /// An object of another process.
    pub(crate) fn import(gpu: &Arc<Gpu>, exported: Exported) -> Result<Self, BackendError> {
        check_support(gpu)?;
        let Exported { bytes, offset, .. } = exported;
        let refused = |e| BackendError {
            status: Status::BadMemory,
            context: format!("import {bytes} bytes of host memory from {offset:#x}"),
            source: Some(Box::new(e) as Box<_>),
        };
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

    /// A range of guest RAM, which is registered as `view`.
    pub(crate) fn guest_ram(
        gpu: &Arc<Gpu>,
        ram: Arc<SharedMemory>,
        (offset, bytes): (u64, u64),
        view: View,
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

    /// The registration with all rights.
    pub(crate) fn main(&self, context: &Arc<Context>) -> Result<View, BackendError> {
        let mut main = self.main.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = &*main {
            return Ok(view.clone());
        }
        let registration = self.register(context, 0, self.bytes, Access::ReadWrite)?;
        let view = View {
            registration: Arc::new(registration),
            offset: 0,
        };
        Ok(main.insert(view).clone())
    }

    /// A registration of its own for a range.
    pub(crate) fn register(
        &self,
        context: &Arc<Context>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Registration, BackendError> {
        register(context, &self.shared, (self.offset + offset, bytes), access)
    }

    /// Whether it belongs to this GPU.
    pub(crate) fn is_of(&self, gpu: &Arc<Gpu>) -> bool {
        std::ptr::eq(self.gpu.as_ptr(), Arc::as_ptr(gpu))
    }

    /// The object with its registration, if nobody else has either.
    fn reusable(&mut self) -> Option<HostChunk> {
        let view = self
            .main
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
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
        let no_memory = |e: MemoryError| BackendError {
            status: Status::NoMemory,
            context: format!("allocate {bytes} bytes of host memory"),
            source: Some(Box::new(e)),
        };
        let shared = SharedMemory::new("causeway-host", bytes, gpu.host_pages);
        let shared = Arc::new(shared.map_err(no_memory)?);
        let mapping = shared.map(0, bytes, Access::ReadWrite).map_err(no_memory)?;
        mapping.populate().map_err(no_memory)?;
        let what = || format!("allocate {bytes} bytes of host memory");
        let registration =
            Registration::new(&gpu.home, mapping, false).map_err(|e| unregistered(what(), e))?;
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
        let file = file.map_err(|e| BackendError {
            status: Status::NoMemory,
            context: String::from("duplicate the descriptor of host memory"),
            source: Some(Box::new(e)),
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
        if gpu.home.is_lost() || bytes > KEPT_BYTES_MAX || !gpu.host_chunks.has_room(bytes) {
            return;
        }
        if let Some(chunk) = self.reusable()
            && chunk.scrub()
        {
            drop(gpu.host_chunks.put(bytes, chunk));
        }
    }
}
