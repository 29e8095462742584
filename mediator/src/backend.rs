//! What a mediator drives: the seam between sessions and a GPU.
//!
//! The mediator has validated everything that it can before it calls a back end: handles, ranges, rights,
//! quotas, alignment. A back end need not trust the guest's *addresses in work*: those it checks itself.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_memory::SharedMemory;
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Parameter, Status};

/// What a back end is. Limits hold for each session.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Back end and device, for people; at most 64 bytes.
    pub name: String,
    /// Memory of the device in bytes.
    pub memory_bytes: u64,
    /// Sizes of allocations are rounded up to this; a power of two, at least 4096.
    pub granularity_bytes: u64,
    /// GPU virtual addresses of every address space, in bytes.
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
#[error("line {line}: {reason}")]
pub struct ModuleError {
    /// Line in the image, from 1; 0 if the fault has no line.
    pub line: u32,
    /// What is wrong and, where one is known, the way out.
    pub reason: String,
}

/// Work that went wrong while it was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `MemoryFault` or `KernelFault` end the session; `BadLaunch`, `BadParameters` stop the command buffer.
    pub status: Status,
    /// Kernel, block and thread, address: whatever is known.
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.text(), self.text)
    }
}

/// A GPU, or something that stands in for one.
pub trait Backend: Send + Sync {
    /// What it is.
    fn attributes(&self) -> &Attributes;

    /// `bytes` bytes (a multiple of the granularity) of memory that reads as zero whatever it held before.
    ///
    /// # Errors
    /// `NoMemory`, `Unsupported`, `BackEnd`.
    fn allocate(&self, kind: MemoryKind, bytes: u64) -> Result<Arc<dyn Memory>, BackendError>;

    /// Makes `bytes` bytes of guest RAM, at `offset` of `ram`, usable like an allocation of host kind.
    ///
    /// # Errors
    /// `Unsupported`, `NoMemory`, `BackEnd`.
    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError>;

    /// A new, empty address space. `stop` is set when the session ends: work under way must then return soon.
    ///
    /// # Errors
    /// `NoMemory`, `BackEnd`.
    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError>;
}

/// Memory of an allocation. It lives as long as anyone holds it: mappings, work under way, other sessions.
///
/// Whoever uses the memory holds the `Arc` that it was given, not something taken out of [`Self::as_any`]:
/// the mediator's account of the memory travels with that `Arc`, and ends when the last one is dropped.
pub trait Memory: Send + Sync + Any {
    /// Size in bytes.
    fn bytes(&self) -> u64;

    /// The memory object and the offset at which this memory begins in it, if a CPU can map it.
    fn shared(&self) -> Option<(&Arc<SharedMemory>, u64)>;

    /// For the back end to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// A GPU address space: mappings, modules, queues. All methods may be called at any time from any thread.
pub trait Space: Send + Sync {
    /// Maps `bytes` bytes of `memory` from `offset` at `va`, which is free, aligned, and in range.
    ///
    /// # Errors
    /// `NoMemory`, `BackEnd`.
    fn map(
        &self,
        va: u64,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(), BackendError>;

    /// Ends the mapping at `va`. Work that began before may still reach the memory; work that begins later cannot.
    ///
    /// # Errors
    /// `BackEnd`.
    fn unmap(&self, va: u64) -> Result<(), BackendError>;

    /// Changes the rights of the mapping at `va`, with the same timing as [`Self::unmap`].
    ///
    /// # Errors
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

    /// Loads the 64-bit word at `va`, for waiting on fences. `None` if it cannot be read.
    fn load_u64(&self, va: u64) -> Option<u64>;
}

/// A loaded module.
pub trait Module: Send + Sync {
    /// A kernel by name, if the module has it.
    fn function(&self, name: &str) -> Option<Arc<dyn Function>>;
    /// Names of the kernels, for messages.
    fn kernels(&self) -> Vec<String>;
    /// Memory that the module takes beyond its image, in bytes: its variables, and what its code was made into. It
    /// counts against the session's
    /// quota until the module is unloaded and no launch of its kernels is under way.
    fn memory_bytes(&self) -> u64;
}

/// A kernel.
pub trait Function: Send + Sync + Any {
    /// Offset and size of each parameter.
    fn parameters(&self) -> &[Parameter];
    /// Bytes of the parameter block.
    fn parameter_bytes(&self) -> u32;
    /// Threads of a block, at most.
    fn block_threads_max(&self) -> u32;
    /// Static shared memory in bytes.
    fn shared_bytes(&self) -> u32;
    /// For the back end to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// Grid, block and shared memory of a launch. Dimensions are not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

/// One piece of validated work. Addresses are GPU virtual addresses and not validated.
pub enum Work<'a> {
    /// Run a kernel with a parameter block of exactly the size it wants.
    Launch {
        /// The kernel; belongs to a module of the queue's address space.
        function: &'a Arc<dyn Function>,
        /// Dimensions.
        shape: LaunchShape,
        /// The parameter block.
        parameters: &'a [u8],
    },
    /// Copy bytes between ranges that do not overlap.
    Copy {
        /// To.
        destination: u64,
        /// From.
        source: u64,
        /// Bytes, not zero.
        bytes: u64,
    },
    /// Fill with a pattern; destination and length are multiples of its width.
    Fill {
        /// To.
        destination: u64,
        /// Bytes, not zero.
        bytes: u64,
        /// Pattern in the low `width` bytes.
        pattern: u32,
        /// 1, 2 or 4.
        width: u32,
    },
    /// Store `value` at `address` (8-byte aligned) with release ordering, once all before is done.
    Release {
        /// Fence.
        address: u64,
        /// Value.
        value: u64,
    },
    /// Store the time in nanoseconds at `address` (8-byte aligned), once all before is done.
    Timestamp {
        /// Where.
        address: u64,
    },
}

/// Executes work in order. One thread feeds it; it may return before the work is done.
pub trait Queue: Send {
    /// Executes, or enqueues, one piece of work.
    ///
    /// # Errors
    /// The fault of this or of an earlier piece. The queue is then dead.
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault>;

    /// Returns once everything submitted is done.
    ///
    /// # Errors
    /// As [`Self::submit`].
    fn finish(&mut self) -> Result<(), Fault>;
}
