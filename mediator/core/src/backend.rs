//! What a mediator drives: the seam between sessions and a GPU.
//!
//! The mediator has validated everything that it can before it calls a back end: handles, ranges,
//! rights, quotas, alignment. A back end need not trust the guest's *addresses in work*: those it
//! checks itself.

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

/// What a back end is. Limits hold for each session.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Back end and device, for people; at most 64 bytes.
    pub name: String,
    /// Memory of the device in bytes.
    pub memory_bytes: u64,
    /// Sizes of allocations are rounded up to this, and GPU addresses that a guest asks for are
    /// congruent to the offset in the allocation modulo this; a power of two, at least 4096.
    pub granularity_bytes: u64,
    /// Where GPU virtual addresses of all address spaces lie, in bytes. An address space may have
    /// less.
    pub va: std::ops::Range<u64>,
    /// Multiprocessors, or CPU cores.
    pub compute_units: u32,
    /// Threads of a warp.
    pub warp_threads: u32,
    /// Threads of a block, at most.
    pub block_threads_max: u32,
    /// Shared memory of a block in bytes, at most.
    pub shared_bytes_max: u32,
    /// Bit set of [`causeway_protocol::registers::features`].
    pub features: u64,
}

/// Why a back end did not do what it was asked. What the guest hears is [`Self::status`].
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct BackendError {
    /// What the guest is told.
    pub status: Status,
    /// What was being done, with the values, for logs.
    pub context: String,
    /// What failed underneath.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Why a module was refused.
#[derive(Debug, thiserror::Error)]
#[error("{}{reason}", place(*.line))]
pub struct ModuleError {
    /// Line in the image, from 1; 0 if the fault has no line.
    pub line: u32,
    /// What is wrong and, where one is known, the way out.
    pub reason: String,
}

fn place(line: u32) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

/// Who is told that the device was taken from all sessions: see [`Backend::observe_loss`].
pub type LossObserver = Box<dyn Fn(&Fault) + Send + Sync>;

/// A GPU, or something that stands in for one.
pub trait Backend: Send + Sync {
    /// What it is.
    fn attributes(&self) -> &Attributes;

    /// `bytes` bytes (a multiple of the granularity) of memory that reads as zero whatever it held
    /// before.
    ///
    /// # Errors
    /// `NoMemory`, `Unsupported`, `BackEnd`.
    fn allocate(
        &self,
        kind: MemoryKind,
        bytes: u64,
        options: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError>;

    /// Makes memory that another process exported usable here, as it is.
    ///
    /// # Errors
    /// `BadMemory` if it is not what it is said to be, `Unsupported`, `NoMemory`, `BackEnd`.
    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError>;

    /// Makes `bytes` bytes of guest RAM, at `offset` of `ram`, usable like an allocation of host
    /// kind.
    ///
    /// # Errors
    /// `Unsupported`, `NoMemory`, `BackEnd`.
    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError>;

    /// A new, empty address space. `stop` is set when the session ends: work under way must then
    /// return soon.
    ///
    /// # Errors
    /// `NoMemory`, `BackEnd`.
    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError>;

    /// Whether a fault has left this process unable to use the device ever again, so that a
    /// session's reset cannot help and only another process can.
    fn is_poisoned(&self) -> bool {
        false
    }

    /// Has `lost` called when the device is taken from all sessions at once, by others than their
    /// work: the host wants it back, or somebody has reset it. When `lost` returns, no session has
    /// any of its memory mapped, or begins new work with it, until the session's guest begins anew;
    /// work under way lets go soon. Host memory and guest RAM stay.
    ///
    /// Only the first caller is heard. `lost` is called with no lock held that any other method
    /// takes. Most back ends lose their device by work only, or not at all.
    fn observe_loss(&self, lost: LossObserver) {
        drop(lost);
    }

    /// How long work may go on after its client has ended, while other clients of the session live,
    /// before it is stopped. Zero for a back end that can stop any work; longer for one that is
    /// spent ([`Self::is_poisoned`]) if work does not end by itself.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }
}

/// Memory of an allocation. It lives as long as anyone holds it: mappings, work under way, other
/// sessions.
///
/// Whoever uses the memory holds the `Arc` that it was given, not something taken out of
/// [`Self::as_any`]: the mediator's account of the memory travels with that `Arc`, and ends when
/// the last one is dropped.
pub trait Memory: Send + Sync + Any {
    /// Size in bytes.
    fn bytes(&self) -> u64;

    /// What can be placed in an aperture, if a CPU can reach this memory.
    fn backing(&self) -> Option<Backing>;

    /// What another process needs to use this memory, too.
    ///
    /// # Errors
    /// `Unsupported`, `NoMemory` (no descriptor), `BackEnd`.
    fn export(&self) -> Result<Exported, BackendError>;

    /// For the back end to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// How memory is to be allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocateOptions {
    /// In a form that the device may compress. Only where `features::COMPRESSION` is set.
    pub compressible: bool,
}

/// Memory on its way to another process.
#[derive(Debug)]
pub struct Exported {
    /// What it is made of.
    pub kind: MemoryKind,
    /// Size in bytes.
    pub bytes: u64,
    /// A memory object for host kind; for the others, what the device's driver made.
    pub file: OwnedFd,
    /// Where the memory begins in a memory object, in bytes.
    pub offset: u64,
    /// Page size of a memory object.
    pub pages: PageSize,
}

/// A GPU address space: mappings, modules, queues. All methods may be called at any time from any
/// thread.
///
/// It hands out its own addresses: [`crate::va::VaAllocator`] does it for back ends that are free
/// to choose.
pub trait Space: Send + Sync {
    /// Maps `bytes` bytes of `memory` from `offset`, at `wanted` or where it likes. Gives the
    /// address, at which no other mapping of this space begins. Everything is a multiple of 4 KiB
    /// and in range; `wanted` is congruent to `offset` modulo the granularity.
    ///
    /// # Errors
    /// `AddressInUse` if it cannot be at `wanted`, `Unsupported` if it cannot have these rights,
    /// `NoMemory`, `BackEnd`.
    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError>;

    /// Ends the mapping at `va`. Work that began before may still reach the memory; work that
    /// begins later cannot.
    ///
    /// # Errors
    /// `BackEnd`.
    fn unmap(&self, va: u64) -> Result<(), BackendError>;

    /// Changes the rights of the mapping at `va`, with the same timing as [`Self::unmap`].
    ///
    /// # Errors
    /// `Unsupported` if this memory cannot have these rights; the mapping then has those it had.
    /// `BackEnd`.
    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError>;

    /// Loads a module image. `image` is a private copy of what the guest gave.
    ///
    /// # Errors
    /// [`ModuleError`], for the guest's log.
    fn load_module(&self, image: &[u8]) -> Result<Arc<dyn Module>, ModuleError>;

    /// An execution queue.
    ///
    /// # Errors
    /// `NoMemory`, `BackEnd`.
    fn create_queue(&self) -> Result<Box<dyn Queue>, BackendError>;

    /// Makes a sequence of work that can be submitted again and again as one ([`Work::Replay`]).
    /// `work` may be empty; the recording holds the `Arc`s of the functions in it. Only where
    /// `features::RECORDING` is set.
    ///
    /// # Errors
    /// `BadLaunch`, `BadParameters`, `MemoryFault` (addresses that are not mapped now), `NoMemory`,
    /// `BackEnd`.
    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError>;

    /// Loads the 64-bit word at `va`, for waiting on fences. `None` if it cannot be read.
    fn load_u64(&self, va: u64) -> Option<u64>;
}

/// A loaded module.
pub trait Module: Send + Sync {
    /// A kernel by name, if the module has it.
    fn function(&self, name: &str) -> Option<Arc<dyn Function>>;
    /// Names of the kernels, for messages.
    fn kernels(&self) -> Vec<String>;
    /// Memory that the module takes beyond its image, in bytes: its variables, and what its code
    /// was made into. It counts against the session's quota until the module is unloaded and no
    /// launch of its kernels is under way.
    fn memory_bytes(&self) -> u64;
}

/// A kernel. Work that launches it holds the `Arc` that it was given until it is done, like
/// [`Memory`]: the account of the kernel's module travels with that.
pub trait Function: Send + Sync + Any {
    /// Offset and size of each parameter.
    fn parameters(&self) -> &[Parameter];
    /// Bytes of the parameter block.
    fn parameter_bytes(&self) -> u32;
    /// Threads of a block, at most: the smaller of the kernel's limit and the device's.
    fn block_threads_max(&self) -> u32;
    /// Static shared memory of a block in bytes.
    fn shared_bytes(&self) -> u32;
    /// Dynamic shared memory of a block in bytes, at most.
    fn dynamic_shared_bytes_max(&self) -> u32;

    /// Checks a shape that is within all other limits. [`Launch::new`] calls it.
    ///
    /// # Errors
    /// The reason for which this back end cannot launch the kernel in this shape.
    fn check_shape(&self, shape: &LaunchShape) -> Result<(), String> {
        let _ = shape;
        Ok(())
    }

    /// For the back end to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// A sequence of work, ready to be submitted as one. It holds the kernels that it launches. A
/// replay holds the `Arc` that it was given until it is done: as with [`Memory`], the mediator's
/// account travels with it.
pub trait Recording: Send + Sync + Any {
    /// Memory that it takes beside its work, in bytes, like [`Module::memory_bytes`].
    fn memory_bytes(&self) -> u64;
    /// For the back end to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// Executes work in order. One thread feeds it; it may return before the work is done.
pub trait Queue: Send {
    /// Executes, or enqueues, one piece of work. A back end may wait for more before it begins,
    /// until [`Self::flush`].
    ///
    /// # Errors
    /// The fault of this or of an earlier piece. The queue is then dead.
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault>;

    /// Begins everything submitted: there is nothing more to come for now.
    ///
    /// # Errors
    /// As [`Self::submit`].
    fn flush(&mut self) -> Result<(), Fault>;

    /// Whether work is under way, or has gone wrong meanwhile. Asked now and then while there is
    /// nothing to submit.
    ///
    /// # Errors
    /// As [`Self::submit`].
    fn poll(&mut self) -> Result<Progress, Fault>;

    /// Returns once everything submitted is done, or soon after the session's stop flag was set.
    ///
    /// # Errors
    /// As [`Self::submit`].
    fn finish(&mut self) -> Result<(), Fault>;
}
