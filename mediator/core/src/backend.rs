//! Back ends: the interface between sessions and a GPU.
//!
//! The mediator validates handles, ranges, rights, quotas and alignment before it calls a back end.
//! The back end checks the *GPU addresses in work* itself.

mod facts;
mod reservation;
mod work;

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use causeway_memory::{Backing, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{
    EncodeTensorMap, KERNEL_ATTRIBUTES, MemoryKind, Parameter, Status, TENSOR_MAP_BYTES,
};

pub use causeway_protocol::packet::{CopyShape, FillShape, LaunchOptions, LaunchShape};
pub use facts::DeviceFacts;
pub use reservation::Reservation;
pub use work::{
    Fault, Launch, MemoryWork, Progress, Recorded, RecordedLaunch, Work, is_cooperative,
    refuse_clusters,
};

/// What a back end tells sessions about its device: sizes, limits and features. The values are the
/// same for all sessions on the back end, whatever other sessions use.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Name of the back end and its device, for display; at most 64 bytes of UTF-8.
    pub name: String,
    /// Size of the device's memory in bytes.
    pub memory_bytes: u64,
    /// Granularity of allocations in bytes: a power of two, at least 4096. Sizes of allocations are
    /// rounded up to a multiple of it. A guest that chooses the GPU address of a mapping must
    /// choose one that differs from the mapping's offset in the allocation by a multiple of the
    /// granularity.
    pub granularity_bytes: u64,
    /// Range of GPU virtual addresses in which all mappings lie. An address space may offer only a
    /// part of it.
    pub va: std::ops::Range<u64>,
    /// Number of the GPU's multiprocessors, or of the CPU cores that execute kernels instead of a
    /// GPU; 0 if the back end executes no kernels.
    pub compute_units: u32,
    /// Number of threads in a warp; 0 if the back end executes no kernels.
    pub warp_threads: u32,
    /// Maximum number of threads in a block; 0 if the back end executes no kernels.
    pub block_threads_max: u32,
    /// Maximum size of a block's shared memory in bytes; 0 if the back end executes no kernels.
    pub shared_bytes_max: u32,
    /// Optional features that the back end has: a bitwise OR of the constants in
    /// [`causeway_protocol::registers::features`].
    pub features: u64,
}

/// How many times the bytes of an image a load may need, if a back end does not know.
const LOAD_FACTOR: u64 = 16;

/// Why an operation of a back end failed. The guest sees only [`Self::status`]; the rest is for
/// logs.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct BackendError {
    /// Status that the guest receives.
    pub status: Status,
    /// Which operation failed, with which values, as text for logs.
    pub context: String,
    /// The error that caused the failure, if there is one.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl BackendError {
    /// Returns an error without a cause: `status` is for the guest, and `context` names the failed
    /// operation for logs.
    pub fn new(status: Status, context: impl Into<String>) -> Self {
        Self {
            status,
            context: context.into(),
            source: None,
        }
    }

    /// Returns this error with `source` as its cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// Returns the causes of `error` as text, each after a colon, for a log line that shows `error`
/// itself first. The text is empty if `error` has no cause.
pub fn cause(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// Why a back end cannot load a module.
#[derive(Debug, thiserror::Error)]
#[error("{}{reason}", place(*.line))]
pub struct ModuleError {
    /// Line of the module's text that contains the mistake, counted from 1; 0 if the mistake is not
    /// in a particular line.
    pub line: u32,
    /// What is wrong with the module and, if possible, how to correct it.
    pub reason: String,
}

impl ModuleError {
    /// Returns the error for a mistake in line `line` of a module, counted from 1 (0 if the mistake
    /// is not in a particular line). `reason` describes the mistake.
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

/// A function that a back end calls when its device is lost for a reason other than GPU work, with
/// the fault that names this reason. [`Backend::observe_loss`] registers the function.
pub type LossObserver = Box<dyn Fn(&Fault) + Send + Sync>;

/// A GPU, or software that executes GPU work in its place. Sessions get memory and address spaces
/// from it.
pub trait Backend: Send + Sync {
    /// Returns sizes, limits and features of the device.
    fn attributes(&self) -> &Attributes;

    /// Returns what identifies the device, and its CUDA device attributes. The default
    /// implementation tells what [`Self::attributes`] says: it suits back ends that are no CUDA
    /// device.
    fn device_facts(&self) -> DeviceFacts {
        DeviceFacts::of(self.attributes())
    }

    /// Allocates `bytes` bytes of memory of kind `kind`, filled with zeros. `bytes` is a multiple
    /// of [`Attributes::granularity_bytes`].
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

    /// Makes memory that another process exported usable in this process. The content of the memory
    /// does not change.
    ///
    /// # Errors
    /// * `BadMemory` if the descriptor does not lead to memory of the kind and size that `exported`
    ///   states.
    /// * `Unsupported` if the back end cannot import memory of this kind.
    /// * `NoMemory` if this process has no free addresses or file descriptors left.
    /// * `BackEnd` if the driver fails.
    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError>;

    /// Lets the GPU use `bytes` bytes of guest RAM, from byte `offset` of the object `ram`, like an
    /// allocation of kind [`MemoryKind::Host`].
    ///
    /// # Errors
    /// * `Unsupported` if the back end cannot use guest RAM.
    /// * `NoMemory` if this process has no free addresses left or may not lock more memory.
    /// * `BackEnd` if the driver fails.
    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError>;

    /// Creates an empty address space. The mediator sets `stop` to true when the session ends:
    /// kernels and copies that still run must then end soon.
    ///
    /// # Errors
    /// `NoMemory` if device or host have not enough memory, `BackEnd` if the driver fails.
    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError>;

    /// Returns how many bytes of the host's memory [`Space::load_module`] needs at most while it
    /// loads an image of `image_bytes` bytes, beside the image and what the module keeps. An
    /// estimate: the mediator lets loads wait for each other by it. The default implementation
    /// suits back ends that do not know.
    fn load_bytes(&self, image_bytes: u64) -> u64 {
        image_bytes.saturating_mul(LOAD_FACTOR)
    }

    /// Returns whether work is executed while it is submitted, so that the mediator shares out the
    /// device's time between sessions. The queues then tell how much of it work has taken
    /// ([`Queue::take_used_ns`]).
    fn shares_time(&self) -> bool {
        false
    }

    /// Returns whether a fault has made the device unusable for this process forever. A session can
    /// use the device again only in another process.
    fn is_poisoned(&self) -> bool {
        false
    }

    /// Sets the callback that the back end calls when the device is lost for a reason other than
    /// GPU work: the host wants the device back, or the device was reset from outside. When `lost`
    /// returns, no session has device memory mapped, and no session begins work on the device
    /// before its next reset; work that still runs ends soon. Host memory and guest RAM stay
    /// mapped.
    ///
    /// The back end keeps only the first callback, and holds none of its locks during the call. The
    /// default implementation does nothing: it suits back ends that lose their device only through
    /// faults of GPU work, or never.
    fn observe_loss(&self, lost: LossObserver) {
        drop(lost);
    }

    /// Returns how long the work of a client may continue after that client's reset before the
    /// mediator stops the work, if the session has other clients. Zero for a back end that can stop
    /// any work without harm; longer for a back end that becomes poisoned ([`Self::is_poisoned`])
    /// if its work is stopped.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }
}

/// Memory of an allocation, of an import or of registered guest RAM. The memory is freed when no
/// handle, mapping, running work or other session holds it any more.
///
/// The session's quota is charged for the memory until the last `Arc<dyn Memory>` that its users
/// hold is dropped. So users must keep that `Arc`; a reference to the back end's own type, which
/// [`Self::as_any`] gives, does not count.
pub trait Memory: Send + Sync + Any {
    /// Returns the size of the memory in bytes.
    fn bytes(&self) -> u64;

    /// Returns the memory in the form in which a VMM can place it in an aperture; `None` if CPUs
    /// cannot access this memory.
    fn backing(&self) -> Option<Backing>;

    /// Returns a descriptor of this memory, with its kind, size and place, by which another process
    /// can import the memory ([`Backend::import`]).
    ///
    /// # Errors
    /// `Unsupported` if this memory cannot be shared, `NoMemory` if the process has no free file
    /// descriptor left, `BackEnd` if the driver fails.
    fn export(&self) -> Result<Exported, BackendError>;

    /// Returns `self` as [`Any`], so that the back end can downcast it to its own type.
    fn as_any(&self) -> &dyn Any;
}

/// Options of an allocation that a guest chooses in addition to its kind and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocateOptions {
    /// Whether the device may store the memory compressed. Can be true only if the back end has
    /// `features::COMPRESSION`.
    pub compressible: bool,
}

/// Memory that one process exports and another one imports: a file descriptor, and a description of
/// the memory behind it.
#[derive(Debug)]
pub struct Exported {
    /// Kind of the memory behind the descriptor.
    pub kind: MemoryKind,
    /// Size of the memory in bytes.
    pub bytes: u64,
    /// The file descriptor. It belongs to a memory object if `kind` is [`MemoryKind::Host`];
    /// otherwise the device's driver created it.
    pub file: OwnedFd,
    /// Offset in bytes at which the memory begins in the memory object; 0 for memory of a device.
    pub offset: u64,
    /// Page size of the memory object; ignored for memory of a device.
    pub pages: PageSize,
}

/// A GPU address space with its mappings, modules and queues. Any thread may call any method at any
/// time.
///
/// An implementation chooses the addresses of mappings itself. If its device lets it choose any
/// address, it can use [`crate::va::VaAllocator`] for that.
pub trait Space: Send + Sync {
    /// Maps `bytes` bytes of `memory`, from its byte `offset`, with the rights `access`: at GPU
    /// address `wanted`, or at any free address if `wanted` is `None`. Returns the address. The
    /// caller has checked that all numbers are multiples of 4 KiB, that the range is within the
    /// memory, and that `wanted - offset` is a multiple of the granularity.
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

    /// Removes the mapping that begins at GPU address `va`. Work that began before may still access
    /// the memory; later work cannot.
    ///
    /// # Errors
    /// `BackEnd` if the driver fails; the mapping may then still exist.
    fn unmap(&self, va: u64) -> Result<(), BackendError>;

    /// Changes the access rights of the mapping that begins at GPU address `va` to `access`. Work
    /// that began before may still use the old rights.
    ///
    /// # Errors
    /// `Unsupported` if the memory cannot have these rights; the mapping then keeps its rights.
    /// `BackEnd` if the driver fails.
    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError>;

    /// Loads the GPU code in `image`, a private copy that the guest cannot change any more. Before
    /// the back end takes memory that the module keeps, it reserves that memory in `reservation`,
    /// as far as it knows the amount.
    ///
    /// # Errors
    /// [`ModuleError`], for the guest's log, if the image is not valid or needs more than the
    /// device or the session has.
    fn load_module(
        &self,
        image: &[u8],
        reservation: &mut Reservation,
    ) -> Result<Arc<dyn Module>, ModuleError>;

    /// Creates a queue that executes work in this address space.
    ///
    /// # Errors
    /// `NoMemory` if device or host have not enough memory, `BackEnd` if the driver fails.
    fn create_queue(&self) -> Result<Box<dyn Queue>, BackendError>;

    /// Creates a recording of `work`, which may be empty. Each [`Work::Replay`] of the recording
    /// then submits the whole sequence at once. The recording keeps the `Arc`s of its kernels.
    /// Called only if the back end has `features::RECORDING`.
    ///
    /// # Errors
    /// * `BadLaunch` or `BadParameters` if the device cannot launch a kernel in this way.
    /// * `MemoryFault` if an address is not mapped now.
    /// * `NoMemory` if device or host have not enough memory.
    /// * `BackEnd` if the driver fails.
    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError>;

    /// Reads the 64-bit fence at GPU address `va`; `None` if the address is not mapped for reading.
    fn load_u64(&self, va: u64) -> Option<u64>;

    /// Reads as [`Self::load_u64`] does, also where the CPU does not reach the memory. That takes
    /// some microseconds, or longer while the device is busy. Returns `None` also if `gives_up`
    /// returns true meanwhile; an implementation that waits asks it at least every millisecond. The
    /// default implementation suits back ends whose memory the CPU reaches.
    fn fetch_u64(&self, va: u64, gives_up: &dyn Fn() -> bool) -> Option<u64> {
        let _ = gives_up;
        self.load_u64(va)
    }

    /// Returns, and forgets, the oldest text that kernels in this address space have printed: at
    /// most `max` bytes. The back end keeps a bounded amount of text. The default implementation
    /// returns nothing: it suits back ends whose kernels cannot print.
    fn take_output(&self, max: usize) -> Vec<u8> {
        let _ = max;
        Vec::new()
    }

    /// Describes a tensor for the GPU. The kind of `request` is valid, and it has at most
    /// [`causeway_protocol::message::TENSOR_RANK_MAX`] dimensions. The default implementation suits
    /// back ends that are no GPU.
    ///
    /// # Errors
    /// `Unsupported` if the device does not read such descriptions, `MemoryFault` if the tensor's
    /// address is not zero and not mapped, `BackEnd` if the driver fails.
    fn encode_tensor_map(
        &self,
        request: &EncodeTensorMap,
    ) -> Result<TensorMapAnswer, BackendError> {
        let _ = request;
        Err(BackendError::new(
            Status::Unsupported,
            "describe a tensor for a device that copies no tensors",
        ))
    }
}

/// What the CUDA driver answers when it is asked to describe a tensor: a `CUresult`, and the
/// description, which is valid if the result is 0.
pub type TensorMapAnswer = (u32, [u8; TENSOR_MAP_BYTES]);

/// Where a variable of a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// GPU virtual address of the variable.
    pub address: u64,
    /// Size of the variable in bytes.
    pub bytes: u64,
}

/// GPU code that was loaded into an address space, with its kernels.
pub trait Module: Send + Sync {
    /// Returns the kernel `name`; `None` if the module has no kernel of that name.
    fn kernel(&self, name: &str) -> Option<Arc<dyn Kernel>>;
    /// Returns the names of all kernels in the module, in any order.
    fn kernels(&self) -> Vec<String>;
    /// Returns where the variable `name` is; `None` if the module has no variable of that name.
    /// From then on until the module is dropped, copies and fills can use its bytes, also those of
    /// a variable that is constant for kernels. The default implementation suits back ends whose
    /// modules have no variables.
    fn variable(&self, name: &str) -> Option<Variable> {
        let _ = name;
        None
    }
    /// Returns how many bytes of memory the module takes in addition to its image, for its
    /// variables and its compiled code. The session is charged for them until the module is
    /// unloaded and no launch of its kernels runs any more.
    fn memory_bytes(&self) -> u64;
}

/// A kernel of a module. A queue keeps the `Arc` of a kernel until the launch is done: the session
/// is charged for the kernel's module until the last of these `Arc`s is dropped.
pub trait Kernel: Send + Sync + Any {
    /// Returns the offset and the size of each parameter in the parameter block.
    fn parameters(&self) -> &[Parameter];
    /// Returns the size of the parameter block in bytes.
    fn parameter_bytes(&self) -> u32;
    /// Returns the largest number of threads in a block: the smaller of the kernel's limit and the
    /// device's.
    fn block_threads_max(&self) -> u32;
    /// Returns how many bytes of shared memory the kernel's code declares for each block.
    fn shared_bytes(&self) -> u32;
    /// Returns the maximum number of bytes of dynamic shared memory that a launch may request for
    /// each block.
    fn dynamic_shared_bytes_max(&self) -> u32;

    /// Returns the kernel's CUDA attributes, by their numbers in `CUfunction_attribute`; `None` for
    /// those that the back end does not know. The default implementation tells what the other
    /// methods say.
    fn cuda_attributes(&self) -> [Option<i32>; KERNEL_ATTRIBUTES] {
        let value = |number: u32| i32::try_from(number).ok();
        let mut attributes = [None; KERNEL_ATTRIBUTES];
        attributes[0] = value(self.block_threads_max());
        attributes[1] = value(self.shared_bytes());
        attributes[8] = value(self.dynamic_shared_bytes_max());
        attributes
    }

    /// Returns whether launches of the kernel may print text ([`Space::take_output`]). The default
    /// implementation suits back ends whose kernels cannot print.
    fn prints(&self) -> bool {
        false
    }

    /// Checks whether the kernel can be launched in `shape`, which [`Launch::new`] has found to be
    /// within all other limits. The default implementation accepts every shape.
    ///
    /// # Errors
    /// A text that says why this back end cannot launch the kernel in this shape.
    fn check_shape(&self, shape: &LaunchShape) -> Result<(), String> {
        let _ = shape;
        Ok(())
    }

    /// Checks whether a launch of the kernel in `shape`, which is within all other limits, can have
    /// `options`. The default implementation suits back ends that run any number of blocks at the
    /// same time, and have no clusters.
    ///
    /// # Errors
    /// A fault with the status `BadLaunch`, which says why this back end cannot launch the kernel
    /// with these options.
    fn check_options(&self, shape: &LaunchShape, options: &LaunchOptions) -> Result<(), Fault> {
        let _ = shape;
        refuse_clusters(options)
    }

    /// Returns `self` as [`Any`], so that the back end can downcast it to its own type.
    fn as_any(&self) -> &dyn Any;
}

/// A sequence of work that a replay submits as a whole. A queue keeps the `Arc` of a recording
/// until the replay is done: the session is charged for the recording and its kernels until the
/// last of these `Arc`s is dropped.
pub trait Recording: Send + Sync + Any {
    /// Returns how many bytes of memory the back end needs for the recording itself, without the
    /// memory that its work uses. The session is charged for them.
    fn memory_bytes(&self) -> u64;
    /// Returns `self` as [`Any`], so that the back end can downcast it to its own type.
    fn as_any(&self) -> &dyn Any;
}

/// A queue that executes work in order. Only one thread uses a queue. The methods other than
/// [`Self::finish`] may return before the work is done.
pub trait Queue: Send {
    /// Executes `work`, or adds it to the queue. The back end may collect work and begin it only at
    /// [`Self::flush`].
    ///
    /// # Errors
    /// The fault of this or of an earlier piece of work. After a fault, every method of the queue
    /// fails.
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault>;

    /// Makes the back end begin all work that was submitted.
    ///
    /// # Errors
    /// The fault of an earlier piece of work.
    fn flush(&mut self) -> Result<(), Fault>;

    /// Returns whether submitted work still runs. The consumer of a command buffer asks from time
    /// to time while its ring is empty.
    ///
    /// # Errors
    /// The fault of an earlier piece of work.
    fn poll(&mut self) -> Result<Progress, Fault>;

    /// Waits until all submitted work is done. If the stop flag of the address space is set (see
    /// [`Backend::create_space`]), waits only briefly.
    ///
    /// # Errors
    /// The fault of an earlier piece of work.
    fn finish(&mut self) -> Result<(), Fault>;

    /// Returns whether work may still run when [`Self::submit`] has returned. False only for a
    /// queue that executes all work on the submitting thread.
    fn runs_behind(&self) -> bool {
        true
    }

    /// Returns the time of the device's units, in nanoseconds, that work has taken since the last
    /// call, added up over the units. Only for a queue that does not run behind: by this, sessions
    /// share out the device.
    fn take_used_ns(&mut self) -> u64 {
        0
    }
}
