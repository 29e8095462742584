//! A back end whose kernels are closures.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, Exported, FabricBytes, Fault, LossObserver,
    Memory, Place, Space,
};
use causeway_mediator::va::VaAllocator;
use causeway_memory::{PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::registers::features;
use parking_lot::Mutex;

use crate::behind::Behind;
use crate::failures::{Failures, error};
use crate::gate::Gate;
use crate::kernel::{FakeKernel, FakeLaunch};
use crate::live::{Alive, Counts, Live, Used};
use crate::memory::{FakeMemory, SpaceMemory};
use crate::space::FakeSpace;

/// A back end for tests. A module image is text: a line `kernel NAME` for each of its kernels,
/// which the test has defined by [`FakeBackend::define`], a line `variable NAME BYTES` for each of
/// its variables (at most a page each, and an allocation each), a line `variables BYTES` for memory
/// that the module takes, a line `late BYTES` for memory that it takes and has not reserved, and a
/// line `spare BYTES` for memory that it reserves and does not take.
pub struct FakeBackend {
    attributes: Attributes,
    counts: Counts,
    peak_bytes: AtomicU64,
    kernels: Mutex<HashMap<String, FakeKernel>>,
    failures: Arc<Failures>,
    behind: Arc<Behind>,
    piece_ns: Arc<AtomicU64>,
    loads: Arc<Gate>,
    fetches: Arc<Gate>,
    priorities: Arc<Mutex<Vec<i32>>>,
    used: Used,
    load_bytes: AtomicU64,
    shares_time: AtomicBool,
    grace: Mutex<Duration>,
    is_poisoned: AtomicBool,
    /// Memory with fabric handles, as long as somebody has it.
    fabric: Mutex<HashMap<FabricBytes, Weak<SharedMemory>>>,
    loss: OnceLock<LossObserver>,
}

impl FakeBackend {
    /// Creates a back end with 1 GiB of memory, no kernels, and all features but compression.
    pub fn new() -> Arc<Self> {
        let all = features::KERNELS
            | features::GUEST_RAM
            | features::SHARING
            | features::RECORDING
            | features::DEVICE_VISIBLE
            | features::PRIORITIES
            | features::FABRIC_EXPORT
            | features::FABRIC_IMPORT
            | features::ARRAYS;
        Self::with_features(all)
    }

    /// Creates such a back end with other [`features`].
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
            piece_ns: Arc::default(),
            loads: Arc::default(),
            fetches: Arc::default(),
            priorities: Arc::default(),
            used: Used::default(),
            load_bytes: AtomicU64::new(0),
            shares_time: AtomicBool::new(false),
            grace: Mutex::default(),
            is_poisoned: AtomicBool::new(false),
            fabric: Mutex::default(),
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
        self.kernels.lock().insert(name.to_owned(), kernel);
    }

    /// Makes every `operation` ("allocate", "import", "register_ram", "create_space", "map",
    /// "unmap", "create_queue", "record", "submit") fail with `status`, or succeed again with
    /// `None`.
    pub fn fail(&self, operation: &'static str, status: Option<Status>) {
        self.failures.set(operation, status);
    }

    /// Makes work of all address spaces go on using memory after its mappings have ended, and
    /// textures that have ended, or lets it end: then memory and charges are let go.
    pub fn use_unmapped(&self, used: bool) {
        let before = std::mem::replace(&mut *self.used.lock(), used.then(Vec::new));
        drop(before);
    }

    /// Makes queues keep their work until [`Self::catch_up`], or execute it at once again.
    pub fn run_behind(&self, behind: bool) {
        self.behind.set(behind);
    }

    /// Executes the work that queues have kept, in order for each queue, on the calling thread. A
    /// fault is the queue's.
    pub fn catch_up(&self) {
        self.behind.catch_up();
    }

    /// Makes queues that run behind say that the device has begun the last of their work, or not.
    pub fn set_near_end(&self, near_end: bool) {
        self.behind.set_near_end(near_end);
    }

    /// Makes queues that run behind say that the device has enough work for those in a hurry, or
    /// not.
    pub fn set_full(&self, is_full: bool) {
        self.behind.set_full(is_full);
    }

    /// Makes queues that run behind say that the device has enough work for all, or not.
    pub fn set_overfull(&self, is_overfull: bool) {
        self.behind.set_overfull(is_overfull);
    }

    /// Makes queues that run behind say at their end that their work may go on, or not.
    pub fn set_endless(&self, is_endless: bool) {
        self.behind.set_endless(is_endless);
    }

    /// Returns how often consumers asked queues whether the device has enough work.
    pub fn looks_for_room(&self) -> u64 {
        self.behind.looks()
    }

    /// Makes queues say that each piece of work takes `piece_ns` nanoseconds of the device.
    pub fn set_piece_ns(&self, piece_ns: u64) {
        self.piece_ns.store(piece_ns, Ordering::Relaxed);
    }

    /// Makes loads of modules and creations of arrays wait in the back end, or lets all go on.
    pub fn hold_loads(&self, hold: bool) {
        self.loads.close(hold);
    }

    /// Makes the back end say that each load of a module needs `bytes` bytes while it is under way.
    pub fn set_load_bytes(&self, bytes: u64) {
        self.load_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Makes the back end say that the mediator shares out its time.
    pub fn share_time(&self) {
        self.shares_time.store(true, Ordering::Relaxed);
    }

    /// Makes the back end ask for `grace` for the work of a client that is reset.
    pub fn set_grace(&self, grace: Duration) {
        *self.grace.lock() = grace;
    }

    /// Makes the back end say from now on that a fault has made its device unusable.
    pub fn poison(&self) {
        self.is_poisoned.store(true, Ordering::Relaxed);
    }

    /// Returns the number of loads and creations that wait in the back end.
    pub fn loads_held(&self) -> usize {
        self.loads.waiting()
    }

    /// Makes fence acquires wait in the back end when they look at their fences, until they give
    /// up, or lets all go on.
    pub fn hold_fetches(&self, hold: bool) {
        self.fetches.close(hold);
    }

    /// Returns the number of fence acquires that wait in the back end.
    pub fn fetches_held(&self) -> usize {
        self.fetches.waiting()
    }

    /// Takes the device from all sessions.
    pub fn lose(&self, fault: &Fault) {
        if let Some(lost) = self.loss.get() {
            lost(fault);
        }
    }

    /// Returns the priorities of all queues that were ever created, in that order.
    pub fn priorities(&self) -> Vec<i32> {
        self.priorities.lock().clone()
    }

    /// Returns the numbers of live objects.
    pub fn live(&self) -> Live {
        *self.counts.lock()
    }

    /// Returns the most bytes of allocations that were ever alive.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    fn memory(
        &self,
        shared: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
        counted: (u64, Place),
    ) -> Result<Arc<dyn Memory>, BackendError> {
        self.memory_on_fabric(shared, (offset, bytes), counted, None)
    }

    fn memory_on_fabric(
        &self,
        shared: Arc<SharedMemory>,
        (offset, bytes): (u64, u64),
        (counted, place): (u64, Place),
        fabric: Option<FabricBytes>,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let mapping = shared
            .map(offset, bytes, Access::ReadWrite)
            .map_err(|e| error(Status::NoMemory, &e.to_string()))?;
        let object = Live {
            memories: 1,
            bytes: counted,
            ..Live::default()
        };
        let _alive = Alive::new(&self.counts, object);
        self.peak_bytes
            .fetch_max(self.live().bytes, Ordering::Relaxed);
        Ok(Arc::new(FakeMemory {
            shared,
            offset,
            bytes,
            mapping,
            fabric,
            place,
            _alive,
        }))
    }
}

impl FakeBackend {
    /// Memory that has a fabric handle now.
    fn on_fabric(&self, handle: &FabricBytes) -> Result<Arc<SharedMemory>, BackendError> {
        let found = self.fabric.lock().get(handle).and_then(Weak::upgrade);
        found.ok_or_else(|| error(Status::BadToken, "of no memory"))
    }
}

impl fmt::Debug for FakeBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeBackend")
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

impl Backend for FakeBackend {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// As GPUs do.
    fn greatest_priority(&self) -> i32 {
        match self.attributes.features & features::PRIORITIES {
            0 => 0,
            _ => -5,
        }
    }

    fn allocate(
        &self,
        _: MemoryKind,
        bytes: u64,
        options: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        self.failures.check("allocate")?;
        let shared = SharedMemory::new("fake", bytes, PageSize::Small)
            .map_err(|e| error(Status::NoMemory, &e.to_string()))?;
        let shared = Arc::new(shared);
        let handle = options.fabric.then(|| {
            let mut fabric = self.fabric.lock();
            let mut handle = [0; size_of::<FabricBytes>()];
            handle[..8].copy_from_slice(&(fabric.len() as u64 + 1).to_le_bytes());
            fabric.insert(handle, Arc::downgrade(&shared));
            handle
        });
        self.memory_on_fabric(shared, (0, bytes), (bytes, Place::Own), handle)
    }

    fn import_fabric(
        &self,
        handle: &FabricBytes,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let shared = self.on_fabric(handle)?;
        if shared.bytes() != bytes {
            return Err(error(Status::BadMemory, "of another size"));
        }
        self.memory(shared, 0, bytes, (bytes, Place::Own))
    }

    fn find_fabric(&self, handle: &FabricBytes) -> Result<(), BackendError> {
        self.on_fabric(handle).map(drop)
    }

    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError> {
        self.failures.check("import")?;
        let Exported {
            file,
            bytes,
            offset,
            pages,
            place,
            ..
        } = exported;
        let shared = SharedMemory::adopt(file, pages)
            .map_err(|e| error(Status::BadMemory, &e.to_string()))?;
        self.memory(Arc::new(shared), offset, bytes, (0, place))
    }

    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        self.failures.check("register_ram")?;
        self.memory(ram, offset, bytes, (0, Place::Host))
    }

    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
        self.failures.check("create_space")?;
        let object = Live {
            spaces: 1,
            ..Live::default()
        };
        Ok(Arc::new(FakeSpace {
            memory: Arc::new(SpaceMemory {
                stop,
                mappings: Mutex::default(),
                begun: Instant::now(),
                _alive: Alive::new(&self.counts, object),
            }),
            va: Mutex::new(VaAllocator::new(self.attributes.va.clone())),
            kernels: self.kernels.lock().clone(),
            counts: Arc::clone(&self.counts),
            failures: Arc::clone(&self.failures),
            behind: Arc::clone(&self.behind),
            piece_ns: Arc::clone(&self.piece_ns),
            loads: Arc::clone(&self.loads),
            fetches: Arc::clone(&self.fetches),
            priorities: Arc::clone(&self.priorities),
            used: Arc::clone(&self.used),
        }))
    }

    fn load_bytes(&self, _: u64) -> u64 {
        self.load_bytes.load(Ordering::Relaxed)
    }

    fn shares_time(&self) -> bool {
        self.shares_time.load(Ordering::Relaxed)
    }

    fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Relaxed)
    }

    fn observe_loss(&self, lost: LossObserver) {
        let _ = self.loss.set(lost);
    }

    fn grace(&self) -> Duration {
        *self.grace.lock()
    }
}
