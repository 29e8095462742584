//! Back ends: the interface between sessions and a GPU.
//!
//! The mediator validates handles, ranges, rights, quotas and alignment before it calls a back end.
//! The back end checks the *GPU addresses in work* itself.

mod work;

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use causeway_memory::{Backing, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Parameter, Status};

pub use causeway_protocol::packet::LaunchShape;
pub use work::{Fault, Launch, MemoryWork, Progress, Recorded, RecordedLaunch, Work};

/// Attributes of a back end. Limits hold for each session.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Back end and device, for people; at most 64 bytes.
    pub name: String,
    /// Memory of the device in bytes.
    pub memory_bytes: u64,
    /// Granularity of allocations in bytes: a power of two, at least 4096. Sizes are rounded up to
    /// it. GPU addresses that a guest chooses are congruent to the offset in the allocation modulo
    /// it.
    pub granularity_bytes: u64,
    /// GPU virtual addresses of all address spaces. An address space may have fewer.
    pub va: std::ops::Range<u64>,
    /// Multiprocessors, or CPU cores.
    pub compute_units: u32,
    /// Threads of a warp.
    pub warp_threads: u32,
    /// Most threads of a block.
    pub block_threads_max: u32,
    /// Most shared memory of a block in bytes.
    pub shared_bytes_max: u32,
    /// Bit set of [`causeway_protocol::registers::features`].
    pub features: u64,
}

/// The failure of a back end's operation. The guest gets only [`Self::status`].
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct BackendError {
    /// Status for the guest.
    pub status: Status,
    /// The operation with its values, for logs.
    pub context: String,
    /// The cause.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl BackendError {
    /// Returns the failure of the operation that `context` names, without a cause.
    pub fn new(status: Status, context: impl Into<String>) -> Self {
        Self {
            status,
            context: context.into(),
            source: None,
        }
    }

    /// Returns the same failure with `source` as its cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// Why a back end refused a module.
#[derive(Debug, thiserror::Error)]
#[error("{}{reason}", place(*.line))]
pub struct ModuleError {
    /// Line in the image, from 1; 0 if the mistake has no line.
    pub line: u32,
    /// The mistake and, where one is known, the way out.
    pub reason: String,
}

impl ModuleError {
    /// Returns the refusal of an image for `reason` in line `line`; 0 means no line.
    pub fn new(line: u32, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { line, reason }
    }
}

fn place(line: u32) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

/// A callback for the loss of the device: see [`Backend::observe_loss`].
pub type LossObserver = Box<dyn Fn(&Fault) + Send + Sync>;

/// A GPU, or something that stands in for one.
pub trait Backend: Send + Sync {
    /// Returns the attributes.
    fn attributes(&self) -> &Attributes;

    /// Allocates `bytes` bytes (a multiple of the granularity) of memory, all zero.
    ///
    /// # Errors
    /// * `NoMemory` if the device or the host has not enough memory.
    /// * `Unsupported` if the back end has no memory of this kind or with these options.
    /// * `BackEnd` if the driver fails.
    fn allocate(
        &self,
        kind: MemoryKind,
        bytes: u64,
        options: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError>;

    /// Makes memory that another process exported usable in this process. Its content stays.
    ///
    /// # Errors
    /// * `BadMemory` if the descriptor is not the memory that `exported` states.
    /// * `Unsupported` if the back end imports no memory of this kind.
    /// * `NoMemory` if the host has no addresses or descriptors left.
    /// * `BackEnd` if the driver fails.
    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError>;

    /// Makes `bytes` bytes of guest RAM, at `offset` of `ram`, usable like an allocation of host
    /// kind.
    ///
    /// # Errors
    /// * `Unsupported` if the back end cannot use guest RAM.
    /// * `NoMemory` if the host has no addresses left or lets this process lock no more memory.
    /// * `BackEnd` if the driver fails.
    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError>;

    /// Creates an empty address space. The mediator sets `stop` when the session ends: work under
    /// way must then return soon.
    ///
    /// # Errors
    /// `NoMemory` if device or host have not enough memory, `BackEnd` if the driver fails.
    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError>;

    /// Whether a fault has poisoned the back end: this process can never use the device again. A
    /// session gets the device back only in another process.
    fn is_poisoned(&self) -> bool {
        false
    }

    /// Sets the callback for the loss of the device by other causes than work: the host wants it
    /// back, or someone reset it. When `lost` returns, no session has memory of the device mapped
    /// or begins work with it before the session's next reset; work under way ends soon. Host
    /// memory and guest RAM stay.
    ///
    /// The back end keeps the first callback, and calls it without a lock that its other methods
    /// take. The default is for back ends that lose their device only by work, or never.
    fn observe_loss(&self, lost: LossObserver) {
        drop(lost);
    }

    /// Returns how long a client's work may go on after the client's reset, while the session has
    /// other clients, before the mediator stops it. Zero for a back end that can stop all work;
    /// longer for one that is poisoned ([`Self::is_poisoned`]) if work does not end by itself.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }
}

/// Memory of an allocation. It lives as long as any mapping, work under way or other session holds
/// it.
///
/// A user of the memory holds the `Arc` that it got, not a part taken out of [`Self::as_any`]: the
/// `Arc` carries the charge to the session's quota, which ends when the last one is dropped.
pub trait Memory: Send + Sync + Any {
    /// Returns the size in bytes.
    fn bytes(&self) -> u64;

    /// Returns what can be placed in an aperture; `None` if no CPU can reach this memory.
    fn backing(&self) -> Option<Backing>;

    /// Returns what another process needs to use this memory too.
    ///
    /// # Errors
    /// `Unsupported` if this memory cannot be shared, `NoMemory` if the process has no descriptor
    /// left, `BackEnd` if the driver fails.
    fn export(&self) -> Result<Exported, BackendError>;

    /// Returns `self`, from which the back end gets its own type.
    fn as_any(&self) -> &dyn Any;
}

/// Options of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocateOptions {
    /// The device may compress the memory. Only where `features::COMPRESSION` is set.
    pub compressible: bool,
}

/// Memory on its way to another process.
#[derive(Debug)]
pub struct Exported {
    /// Kind of memory.
    pub kind: MemoryKind,
    /// Size in bytes.
    pub bytes: u64,
    /// A memory object for host kind; for the other kinds, a descriptor of the device's driver.
    pub file: OwnedFd,
    /// Offset of the memory in a memory object, in bytes.
    pub offset: u64,
    /// Page size of a memory object.
    pub pages: PageSize,
}

/// A GPU address space: mappings, modules, queues. Any thread may call any method at any time.
///
/// The space allocates its addresses; back ends with a free choice use [`crate::va::VaAllocator`].
pub trait Space: Send + Sync {
    /// Maps `bytes` bytes of `memory` from `offset`, at address `wanted` or at a free one. Returns
    /// the address. All numbers are multiples of 4 KiB and in range; `wanted` is congruent to
    /// `offset` modulo the granularity.
    ///
    /// # Errors
    /// * `AddressInUse` if `wanted` is not free.
    /// * `Unsupported` if the memory cannot have these rights.
    /// * `NoMemory` if the space has no free addresses.
    /// * `BackEnd` if the driver fails.
    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError>;

    /// Ends the mapping at `va`. Work that began before may still reach the memory; later work
    /// cannot.
    ///
    /// # Errors
    /// `BackEnd` if the driver fails; the mapping may then still be there.
    fn unmap(&self, va: u64) -> Result<(), BackendError>;

    /// Changes the rights of the mapping at `va`. Work that began before may still have the old
    /// rights.
    ///
    /// # Errors
    /// `Unsupported` if the memory cannot have these rights; the mapping then keeps its rights.
    /// `BackEnd` if the driver fails.
    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError>;

    /// Loads a module image. `image` is a private copy of the guest's.
    ///
    /// # Errors
    /// [`ModuleError`], for the guest's log, if the image is not valid or needs more than the
    /// device has.
    fn load_module(&self, image: &[u8]) -> Result<Arc<dyn Module>, ModuleError>;

    /// Creates an execution queue.
    ///
    /// # Errors
    /// `NoMemory` if device or host have not enough memory, `BackEnd` if the driver fails.
    fn create_queue(&self) -> Result<Box<dyn Queue>, BackendError>;

    /// Creates a recording: a sequence of work that is submitted as one, many times
    /// ([`Work::Replay`]). `work` may be empty. The recording holds the `Arc`s of its kernels. Only
    /// where `features::RECORDING` is set.
    ///
    /// # Errors
    /// * `BadLaunch` or `BadParameters` if the device cannot launch a kernel in this way.
    /// * `MemoryFault` if an address is not mapped now.
    /// * `NoMemory` if device or host have not enough memory.
    /// * `BackEnd` if the driver fails.
    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError>;

    /// Loads the fence at `va`; `None` if the address is not mapped for reading.
    fn load_u64(&self, va: u64) -> Option<u64>;
}

/// A loaded module.
pub trait Module: Send + Sync {
    /// Returns the kernel of this name; `None` if the module has none.
    fn function(&self, name: &str) -> Option<Arc<dyn Function>>;
    /// Returns the names of the kernels, for messages.
    fn kernels(&self) -> Vec<String>;
    /// Returns the memory that the module takes beyond its image, in bytes: its variables and its
    /// compiled code. The session is charged for it until the module is unloaded and no launch of
    /// its kernels is under way.
    fn memory_bytes(&self) -> u64;
}

/// A kernel. Work that launches it holds the `Arc` that it got until it is done, like [`Memory`]:
/// the `Arc` carries the charges of the kernel's module.
pub trait Function: Send + Sync + Any {
    /// Returns offset and size of each parameter.
    fn parameters(&self) -> &[Parameter];
    /// Returns the size of the parameter block in bytes.
    fn parameter_bytes(&self) -> u32;
    /// Returns the most threads of a block: the smaller of the kernel's limit and the device's.
    fn block_threads_max(&self) -> u32;
    /// Returns the static shared memory of a block in bytes.
    fn shared_bytes(&self) -> u32;
    /// Returns the most dynamic shared memory of a block in bytes.
    fn dynamic_shared_bytes_max(&self) -> u32;

    /// Checks a shape that is within all other limits. [`Launch::new`] calls it.
    ///
    /// # Errors
    /// The reason for which this back end cannot launch the kernel in this shape.
    fn check_shape(&self, shape: &LaunchShape) -> Result<(), String> {
        let _ = shape;
        Ok(())
    }

    /// Returns `self`, from which the back end gets its own type.
    fn as_any(&self) -> &dyn Any;
}

/// A sequence of work that is submitted as one. It holds the kernels that it launches. A replay
/// holds the `Arc` that it got until it is done, like [`Memory`]: the `Arc` carries the charges of
/// the recording.
pub trait Recording: Send + Sync + Any {
    /// Returns the memory that it takes beside its work, in bytes, like [`Module::memory_bytes`].
    fn memory_bytes(&self) -> u64;
    /// Returns `self`, from which the back end gets its own type.
    fn as_any(&self) -> &dyn Any;
}

/// An execution queue, which executes work in order. One thread submits. Methods may return before
/// the work is done.
pub trait Queue: Send {
    /// Executes or enqueues a piece of work. The queue may wait for more work before it begins,
    /// until [`Self::flush`].
    ///
    /// # Errors
    /// The fault of this or of an earlier piece. Every later call fails too.
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault>;

    /// Begins all submitted work.
    ///
    /// # Errors
    /// As [`Self::submit`].
    fn flush(&mut self) -> Result<(), Fault>;

    /// Returns whether work is under way. The consumer asks now and then while its ring is empty.
    ///
    /// # Errors
    /// As [`Self::submit`].
    fn poll(&mut self) -> Result<Progress, Fault>;

    /// Waits until all submitted work is done, or for a moment if the session's stop flag is set.
    ///
    /// # Errors
    /// As [`Self::submit`].
    fn finish(&mut self) -> Result<(), Fault>;
}
