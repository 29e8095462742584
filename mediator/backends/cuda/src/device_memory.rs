//! Memory of the GPU: created, scrubbed, allocated to guests, and kept for reuse.
//!
//! The driver promises nothing about the content of fresh memory, so all memory is scrubbed, that
//! is, filled with zeros, before a guest gets it. For that, each allocation is mapped once more, at
//! an address of the back end's own: the alias. Because that mapping is kept, reuse costs one fill
//! instead of a map and an unmap.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use causeway_mediator::backend::{
    AllocateOptions, BackendError, Exported, FabricBytes, Memory, Place,
};
use causeway_memory::{Backing, DeviceMemory, PageSize};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use parking_lot::Mutex;

use crate::addresses::Placement;
use crate::driver::{CudaError, Event, Physical, PhysicalOptions, WaitOutcome, code};
use crate::error::{failed, lacks, refused};
use crate::gate::Gate;
use crate::gpu::Gpu;
use crate::support::Attribute;

/// How much longer scrubbing may take than alone before the work of guests is held up for it.
const SCRUB_PATIENCE: Duration = Duration::from_millis(2);
/// Bytes that any GPU of today fills with zeros in a nanosecond.
const SCRUB_BYTES_PER_NS: u64 = 200;

/// Physical memory of this process with the mapping through which it is scrubbed. An allocation
/// consists of one chunk; afterwards the chunk may be kept for reuse.
pub(crate) struct Chunk {
    /// The mapping through which the memory is scrubbed. Unmapped before the memory is released.
    alias: Placement,
    physical: Arc<Physical>,
    /// The event that happens when the memory has been scrubbed.
    scrubbed: Event,
    /// The gate for the guests' work, closed while scrubbing takes too long.
    gate: Arc<Gate>,
    options: AllocateOptions,
    /// The memory as CPUs can map it, if it is visible to them.
    visible: Option<Arc<dyn DeviceMemory>>,
    /// Dropped last: the memory is taken until then.
    _taken: MemoryAccount,
}

/// Counts `bytes` bytes as taken from the GPU until dropped.
pub(crate) struct MemoryAccount {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl MemoryAccount {
    /// Counts `bytes` bytes as taken. Releases the memory that is kept for reuse if more would be
    /// taken than guests may allocate.
    pub(crate) fn new(gpu: &Gpu, bytes: u64) -> Self {
        let all = Arc::clone(&gpu.taken_bytes);
        let before = all.fetch_add(bytes, Ordering::SeqCst);
        if before.saturating_add(bytes) > gpu.memory_bytes {
            gpu.chunks.purge();
        }
        Self { all, bytes }
    }
}

impl MemoryAccount {
    /// Returns the number of bytes that are counted as taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Chunk {
    /// Creates a chunk of fresh memory, and begins to scrub it.
    fn create(
        gpu: &Gpu,
        kind: MemoryKind,
        bytes: u64,
        options: AllocateOptions,
    ) -> Result<Self, BackendError> {
        let what = || format!("allocate {bytes} bytes on the GPU");
        let wanted = PhysicalOptions {
            compressible: options.compressible,
            ..PhysicalOptions::EXPORTABLE
        };
        let wanted = wanted.with_fabric(options.fabric);
        let taken = MemoryAccount::new(gpu, bytes);
        let create = || Physical::create(&gpu.home, bytes, wanted);
        let physical = match create() {
            // Memory that the pool keeps must not make a request fail.
            Err(error) if error.code == code::CUDA_ERROR_OUT_OF_MEMORY && gpu.chunks.purge() => {
                create()
            }
            outcome => outcome,
        };
        let physical = Arc::new(physical.map_err(|e| failed(what(), e))?);
        let visible = match kind {
            MemoryKind::DeviceVisible => {
                let file = physical.export().map_err(|e| failed(what(), e))?;
                Some(gpu.show(file, bytes)?)
            }
            MemoryKind::Device | MemoryKind::Host => None,
        };
        let chunk = Self {
            alias: gpu.aliases.place(None, &physical, Access::ReadWrite)?,
            scrubbed: Event::new(&gpu.home).map_err(|e| failed(what(), e))?,
            gate: Arc::clone(&gpu.gate),
            physical,
            options,
            visible,
            _taken: taken,
        };
        chunk.scrub(gpu).map_err(|e| failed(what(), e))?;
        Ok(chunk)
    }

    /// Begins to fill the memory with zeros.
    fn scrub(&self, gpu: &Gpu) -> Result<(), CudaError> {
        let (address, bytes) = (self.alias.mapped.address(), self.physical.bytes());
        gpu.scrubber.fill(address, bytes, 0, 4)?;
        gpu.scrubber.record(&self.scrubbed)
    }

    /// Waits until the memory is scrubbed; returns false if the context was lost meanwhile.
    fn settle(&self) -> Result<bool, CudaError> {
        let scrubbing = Duration::from_nanos(self.physical.bytes() / SCRUB_BYTES_PER_NS);
        let waited = match self.scrubbed.wait(SCRUB_PATIENCE + scrubbing)? {
            WaitOutcome::TimedOut => {
                let _closed = self.gate.close();
                self.scrubbed.wait(Duration::MAX)?
            }
            waited => waited,
        };
        Ok(waited == WaitOutcome::Happened)
    }
}

impl Drop for Chunk {
    /// Waits for the end of scrubbing: to unmap memory that is being scrubbed is a fault that
    /// poisons the process. If scrubbing never ends, the context is lost, and the fields' drops
    /// leave everything as it is.
    fn drop(&mut self) {
        if let Err(e) = self.settle() {
            log::debug!("GPU memory was released, but not filled with zeros before: {e}");
        }
    }
}

/// What an allocation consists of.
enum Body {
    Own(Chunk),
    /// Memory of another process, the descriptor by which it was imported, and the memory as CPUs
    /// can map it.
    Imported(Arc<Physical>, OwnedFd, Option<Arc<dyn DeviceMemory>>),
    /// Memory that was imported by a fabric handle.
    Fabric(Arc<Physical>),
}

/// An allocation of GPU memory, of this process or imported from another.
pub(crate) struct GpuMemory {
    gpu: Weak<Gpu>,
    kind: MemoryKind,
    place: Place,
    /// The only owner of the memory, so that a chunk is freed before it is counted as free. Taken
    /// out only by `drop`.
    body: Option<Body>,
    bytes: u64,
    exported: AtomicBool,
    /// The fabric handle, once the driver was asked for it: once, since what the driver keeps for
    /// one is not known, and no quota counts it.
    fabric: Mutex<Option<FabricBytes>>,
}

impl GpuMemory {
    /// Allocates `bytes` bytes of zeros.
    ///
    /// # Errors
    /// * `Unsupported`: the GPU has no memory of this kind or with these options.
    /// * `NoMemory`: the GPU has too little free memory.
    /// * `DeviceLost`, `BackEnd`: the driver failed.
    pub(crate) fn allocate(
        gpu: &Arc<Gpu>,
        kind: MemoryKind,
        bytes: u64,
        options: AllocateOptions,
    ) -> Result<Self, BackendError> {
        if options.compressible && !gpu.support.has(Attribute::Compression) {
            return Err(lacks(Attribute::Compression));
        }
        let visible = kind == MemoryKind::DeviceVisible;
        let suits = |chunk: &Chunk| chunk.options == options && chunk.visible.is_some() == visible;
        let chunk = match gpu.chunks.take(bytes, suits) {
            Some(chunk) => chunk,
            None => Chunk::create(gpu, kind, bytes, options)?,
        };
        let what = || format!("fill {bytes} bytes of GPU memory with zeros");
        if !chunk.settle().map_err(|e| failed(what(), e))? {
            return Err(refused(Status::DeviceLost, what()));
        }
        Ok(Self::of(gpu, (kind, Place::Own), bytes, Body::Own(chunk)))
    }

    /// Imports GPU memory that another process exported.
    ///
    /// # Errors
    /// * `BadMemory`: the descriptor is not GPU memory of the size that `exported` states.
    /// * `Unsupported`: the memory cannot be made visible to CPUs, but should be.
    /// * `NoMemory`: the process has no descriptors or GPU addresses left, or the GPU that the
    ///   memory is on has too little for a context.
    pub(crate) fn import(gpu: &Arc<Gpu>, exported: &Exported) -> Result<Self, BackendError> {
        let bytes = exported.bytes;
        let what = || format!("import {bytes} bytes of GPU memory");
        let whole = bytes != 0 && bytes.is_multiple_of(gpu.granularity_bytes);
        if exported.offset != 0 || !whole {
            return Err(refused(Status::BadMemory, what()));
        }
        let context = match exported.place {
            Place::Apart { gpu: home } => gpu.others.context(home)?,
            Place::Host | Place::Own | Place::Peer => Arc::clone(&gpu.home),
        };
        let physical = Physical::import(&context, &exported.file, bytes)
            .map_err(|source| refused(Status::BadMemory, what()).because(source))?;
        let physical = Arc::new(physical);
        // Whether it is as large as it is said to be shows only when it is mapped.
        let mapped = gpu.aliases.place(None, &physical, Access::None);
        drop(mapped.map_err(as_bad_size)?);
        let file = || duplicate(&exported.file);
        let visible = match exported.kind {
            MemoryKind::DeviceVisible => Some(gpu.show(file()?, bytes)?),
            MemoryKind::Device | MemoryKind::Host => None,
        };
        let body = Body::Imported(physical, file()?, visible);
        Ok(Self::of(gpu, (exported.kind, exported.place), bytes, body))
    }

    /// Imports memory of `bytes` bytes, a multiple of the granularity, by its fabric handle.
    ///
    /// # Errors
    /// * `BadToken`: the driver finds no memory by this handle.
    /// * `BadMemory`: the memory has another size.
    /// * `NoMemory`: the process has no GPU addresses left.
    pub(crate) fn import_fabric(
        gpu: &Arc<Gpu>,
        handle: &FabricBytes,
        bytes: u64,
    ) -> Result<Self, BackendError> {
        let what = || format!("import {bytes} bytes of GPU memory by a fabric handle");
        let other_size = || refused(Status::BadMemory, what());
        let more = bytes.checked_add(gpu.granularity_bytes);
        let more = more.filter(|_| bytes != 0).ok_or_else(other_size)?;
        let import = |bytes| {
            let physical = Physical::import_fabric(&gpu.home, handle, bytes);
            physical.map(Arc::new).map_err(not_found)
        };
        let physical = import(bytes)?;
        // The driver tells no size. A mapping that is too long fails; one that is too short may
        // not, and would keep memory that the session's quota does not count.
        let as_long = gpu.aliases.place(None, &physical, Access::ReadWrite);
        drop(as_long.map_err(as_bad_size)?);
        let longer = gpu.aliases.place(None, &import(more)?, Access::None);
        match longer.map_err(as_bad_size) {
            Ok(_) => Err(other_size()),
            Err(error) if error.status != Status::BadMemory => Err(error),
            Err(_) => Ok(Self::of(
                gpu,
                (MemoryKind::Device, Place::Own),
                bytes,
                Body::Fabric(physical),
            )),
        }
    }

    /// Looks whether the driver finds memory by a fabric handle.
    ///
    /// # Errors
    /// `BadToken`: it finds none.
    pub(crate) fn find_fabric(gpu: &Gpu, handle: &FabricBytes) -> Result<(), BackendError> {
        let found = Physical::import_fabric(&gpu.home, handle, gpu.granularity_bytes);
        found.map(drop).map_err(not_found)
    }

    fn of(gpu: &Arc<Gpu>, (kind, place): (MemoryKind, Place), bytes: u64, body: Body) -> Self {
        Self {
            gpu: Arc::downgrade(gpu),
            kind,
            place,
            exported: AtomicBool::new(!matches!(body, Body::Own(_))),
            body: Some(body),
            bytes,
            fabric: Mutex::default(),
        }
    }

    /// Returns the memory without an address; `None` only while the allocation is dropped.
    pub(crate) fn physical(&self) -> Option<&Arc<Physical>> {
        match self.body.as_ref()? {
            Body::Own(chunk) => Some(&chunk.physical),
            Body::Imported(physical, ..) | Body::Fabric(physical) => Some(physical),
        }
    }

    /// Returns the memory as CPUs can map it, if it is visible to them.
    pub(crate) fn visible(&self) -> Option<&Arc<dyn DeviceMemory>> {
        match self.body.as_ref()? {
            Body::Own(chunk) => chunk.visible.as_ref(),
            Body::Imported(.., visible) => visible.as_ref(),
            Body::Fabric(_) => None,
        }
    }

    /// Returns whether the allocation was made with `gpu`.
    pub(crate) fn is_of(&self, gpu: &Arc<Gpu>) -> bool {
        std::ptr::eq(self.gpu.as_ptr(), Arc::as_ptr(gpu))
    }

    /// Returns a new descriptor of the memory. The driver exports only memory that it created, so
    /// the descriptor of imported memory is duplicated.
    fn descriptor(&self) -> Result<OwnedFd, BackendError> {
        let what = || format!("export {} bytes of GPU memory", self.bytes);
        match &self.body {
            None => Err(refused(Status::BackEnd, what())),
            Some(Body::Fabric(_)) => Err(refused(Status::Unsupported, what())),
            Some(Body::Imported(_, file, _)) => duplicate(file),
            Some(Body::Own(chunk)) => chunk.physical.export().map_err(|e| failed(what(), e)),
        }
    }
}

/// Returns an error of a mapping as that of an import: memory that cannot be mapped is not what it
/// was said to be, unless this process is to blame.
fn as_bad_size(error: BackendError) -> BackendError {
    match error.status {
        Status::NoMemory | Status::DeviceLost => error,
        _ => BackendError {
            status: Status::BadMemory,
            ..error
        },
    }
}

/// Returns the error for a fabric handle that the driver refuses. Which of several errors it
/// answers to one that is unknown, of another fabric or of memory that was freed is its own
/// business.
fn not_found(source: CudaError) -> BackendError {
    let error = failed("find GPU memory by a fabric handle", source);
    match error.status {
        Status::NoMemory | Status::DeviceLost => error,
        _ => BackendError {
            status: Status::BadToken,
            ..error
        },
    }
}

fn duplicate(file: &OwnedFd) -> Result<OwnedFd, BackendError> {
    let what = "duplicate the descriptor of imported memory";
    file.try_clone()
        .map_err(|source| refused(Status::NoMemory, what).because(source))
}

impl Memory for GpuMemory {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn backing(&self) -> Option<Backing> {
        self.visible().cloned().map(Backing::Device)
    }

    fn place(&self) -> Place {
        self.place
    }

    fn export(&self) -> Result<Exported, BackendError> {
        let file = self.descriptor()?;
        // From now on, another process may write the memory after its owner has freed it.
        self.exported.store(true, Ordering::SeqCst);
        Ok(Exported {
            kind: self.kind,
            bytes: self.bytes,
            file,
            offset: 0,
            pages: PageSize::Large,
            place: Place::Own,
        })
    }

    fn fabric_handle(&self) -> Result<FabricBytes, BackendError> {
        let what = || format!("export {} bytes of GPU memory to the fabric", self.bytes);
        let chunk = match &self.body {
            Some(Body::Own(chunk)) if chunk.options.fabric => chunk,
            _ => return Err(refused(Status::BadMemory, what())),
        };
        let mut known = self.fabric.lock();
        if let Some(handle) = *known {
            return Ok(handle);
        }
        let handle = chunk.physical.fabric_handle();
        let handle = handle.map_err(|e| failed(what(), e))?;
        // From now on, other machines may write the memory after its owner has freed it.
        self.exported.store(true, Ordering::SeqCst);
        *known = Some(handle);
        Ok(handle)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        let (Some(Body::Own(chunk)), Some(gpu)) = (self.body.take(), self.gpu.upgrade()) else {
            return;
        };
        let exported = self.exported.load(Ordering::SeqCst);
        if exported || gpu.home.is_poisoned() || !gpu.chunks.has_room(self.bytes) {
            return;
        }
        // No work uses the memory any more: all users held this. The next user waits until it is
        // scrubbed.
        match chunk.scrub(&gpu) {
            Ok(()) => drop(gpu.chunks.put(self.bytes, chunk)),
            Err(e) => log::debug!("freed GPU memory is released, not kept for reuse: {e}"),
        }
    }
}
