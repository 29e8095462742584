//! A back end whose kernels are closures.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use causeway_memory::{Backing, Mapping, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::registers::features;

use super::behind::Behind;
use super::space::FakeSpace;
use crate::backend::{
    AllocateOptions, Attributes, Backend, BackendError, Exported, Fault, LaunchShape, LossObserver,
    Memory, Space,
};
use crate::va::VaAllocator;

/// How many things of a back end are alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Bytes of allocations.
    pub bytes: u64,
    /// Allocations and registered ranges.
    pub memories: u64,
    /// Address spaces.
    pub spaces: u64,
    /// Modules.
    pub modules: u64,
    /// Queues.
    pub queues: u64,
    /// Recordings.
    pub recordings: u64,
}

pub(super) type Counts = Arc<Mutex<Live>>;
pub(super) type Failures = Arc<Mutex<HashMap<&'static str, Status>>>;

type Run = dyn Fn(&FakeLaunch<'_>) -> Result<(), Fault> + Send + Sync;

/// What a kernel does: gets parameters and memory, and may fault.
#[derive(Clone)]
pub struct FakeKernel {
    pub(super) parameter_bytes: u32,
    pub(super) run: Arc<Run>,
}

/// A kernel's view of its launch.
pub struct FakeLaunch<'a> {
    /// Dimensions.
    pub shape: LaunchShape,
    /// The parameter block.
    pub parameters: &'a [u8],
    pub(super) space: &'a FakeSpace,
}

impl FakeLaunch<'_> {
    /// The 64-bit parameter at byte `offset`; zero if there is none.
    pub fn parameter(&self, offset: usize) -> u64 {
        let bytes = self.parameters.get(offset..offset + 8);
        bytes.map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
    }

    /// Stores a 64-bit word at a GPU address.
    ///
    /// # Errors
    /// `MemoryFault`.
    pub fn store(&self, va: u64, value: u64) -> Result<(), Fault> {
        self.space.write(va, &value.to_le_bytes())
    }

    /// Loads a 64-bit word from a GPU address.
    ///
    /// # Errors
    /// `MemoryFault`.
    pub fn load(&self, va: u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.space.read(va, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Whether the session wants work to return.
    pub fn stopped(&self) -> bool {
        self.space.stop.load(Ordering::Relaxed)
    }
}

/// A back end for tests. A module image is text: a line `kernel NAME` for each kernel it has, all of which
/// must have been defined with [`FakeBackend::define`], and perhaps a line `variables BYTES`.
pub struct FakeBackend {
    attributes: Attributes,
    counts: Counts,
    peak_bytes: AtomicU64,
    kernels: Mutex<HashMap<String, FakeKernel>>,
    failures: Failures,
    behind: Arc<Behind>,
    loss: OnceLock<LossObserver>,
}

impl FakeBackend {
    /// A back end with 1 GiB of memory and no kernels, that can do everything but compress.
    pub fn new() -> Arc<Self> {
        let all = features::KERNELS
            | features::GUEST_RAM
            | features::SHARING
            | features::RECORDING
            | features::DEVICE_VISIBLE;
        Self::with_features(all)
    }

    /// The same with other [`features`].
    pub fn with_features(features: u64) -> Arc<Self> {
        Arc::new(Self {
            attributes: Attributes {
                name: "fake".into(),
                memory_bytes: 1 << 30,
                granularity_bytes: 4096,
                va: 0x1_0000..1 << 40,
                compute_units: 1,
                warp_threads: 32,
                block_threads_max: 1024,
                shared_bytes_max: 48 << 10,
                features,
            },
            counts: Counts::default(),
            peak_bytes: AtomicU64::new(0),
            kernels: Mutex::default(),
            failures: Arc::default(),
            behind: Arc::default(),
            loss: OnceLock::new(),
        })
    }

    /// Defines a kernel that takes `parameter_bytes` bytes of parameters.
    pub fn define(
        &self,
        name: &str,
        parameter_bytes: u32,
        run: impl Fn(&FakeLaunch<'_>) -> Result<(), Fault> + Send + Sync + 'static,
    ) {
        let kernel = FakeKernel {
            parameter_bytes,
            run: Arc::new(run),
        };
        lock(&self.kernels).insert(name.to_owned(), kernel);
    }

    /// Makes every `operation` ("allocate", "register_ram", "create_space", "map", "unmap", "create_queue",
    /// "record", "submit") fail with `status`, until told otherwise.
    pub fn fail(&self, operation: &'static str, status: Option<Status>) {
        match status {
            Some(status) => lock(&self.failures).insert(operation, status),
            None => lock(&self.failures).remove(operation),
        };
    }

    /// From now on, queues only take note of what they are given, until [`Self::catch_up`]. Or no longer.
    pub fn run_behind(&self, behind: bool) {
        self.behind.set(behind);
    }

    /// Does what queues have left undone, in order for each queue, on the calling thread. A fault is the queue's.
    pub fn catch_up(&self) {
        self.behind.catch_up();
    }

    /// Takes the device from all sessions.
    pub fn lose(&self, fault: &Fault) {
        if let Some(lost) = self.loss.get() {
            lost(fault);
        }
    }

    /// What is alive now.
    pub fn live(&self) -> Live {
        *lock(&self.counts)
    }

    /// Most bytes of allocations ever alive.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    fn memory(
        &self,
        shared: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
        counted: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let mapping = shared
            .map(offset, bytes, Access::ReadWrite)
            .map_err(|e| error(Status::NoMemory, &e.to_string()))?;
        let mut live = lock(&self.counts);
        live.memories += 1;
        live.bytes += counted;
        self.peak_bytes.fetch_max(live.bytes, Ordering::Relaxed);
        Ok(Arc::new(FakeMemory {
            shared,
            offset,
            bytes,
            counted,
            mapping,
            counts: Arc::clone(&self.counts),
        }))
    }
}

impl Backend for FakeBackend {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn allocate(
        &self,
        _: MemoryKind,
        bytes: u64,
        _: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        check_failure(&self.failures, "allocate")?;
        let shared = SharedMemory::new("fake", bytes, PageSize::Small)
            .map_err(|e| error(Status::NoMemory, &e.to_string()))?;
        self.memory(Arc::new(shared), 0, bytes, bytes)
    }

    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError> {
        check_failure(&self.failures, "import")?;
        let Exported {
            file,
            bytes,
            offset,
            pages,
            ..
        } = exported;
        let shared = SharedMemory::adopt(file, pages)
            .map_err(|e| error(Status::BadMemory, &e.to_string()))?;
        self.memory(Arc::new(shared), offset, bytes, 0)
    }

    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        check_failure(&self.failures, "register_ram")?;
        self.memory(ram, offset, bytes, 0)
    }

    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
        check_failure(&self.failures, "create_space")?;
        lock(&self.counts).spaces += 1;
        let begun = Instant::now();
        let alive = Alive {
            counts: Arc::clone(&self.counts),
            gone: |live| live.spaces -= 1,
        };
        Ok(Arc::new(FakeSpace {
            stop,
            mappings: Arc::default(),
            va: Arc::new(Mutex::new(VaAllocator::new(self.attributes.va.clone()))),
            kernels: lock(&self.kernels).clone(),
            counts: Arc::clone(&self.counts),
            failures: Arc::clone(&self.failures),
            begun,
            behind: Arc::clone(&self.behind),
            _alive: Arc::new(alive),
        }))
    }

    fn observe_loss(&self, lost: LossObserver) {
        let _ = self.loss.set(lost);
    }
}

/// Counts something down when the last holder lets go.
pub(super) struct Alive {
    pub counts: Counts,
    pub gone: fn(&mut Live),
}

impl Drop for Alive {
    fn drop(&mut self) {
        (self.gone)(&mut lock(&self.counts));
    }
}

pub(super) struct FakeMemory {
    shared: Arc<SharedMemory>,
    offset: u64,
    bytes: u64,
    counted: u64,
    pub mapping: Mapping,
    counts: Counts,
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

    fn export(&self) -> Result<Exported, BackendError> {
        let file = self.shared.file().try_clone_to_owned();
        Ok(Exported {
            kind: MemoryKind::Host,
            bytes: self.bytes,
            file: file.map_err(|e| error(Status::NoMemory, &e.to_string()))?,
            offset: self.offset,
            pages: self.shared.pages(),
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        let mut live = lock(&self.counts);
        live.memories -= 1;
        live.bytes -= self.counted;
    }
}

pub(super) fn check_failure(
    failures: &Mutex<HashMap<&'static str, Status>>,
    operation: &'static str,
) -> Result<(), BackendError> {
    match lock(failures).get(operation) {
        Some(status) => Err(error(*status, operation)),
        None => Ok(()),
    }
}

pub(super) fn error(status: Status, context: &str) -> BackendError {
    BackendError {
        status,
        context: context.to_owned(),
        source: None,
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
