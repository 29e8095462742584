//! Back ends: the interface between sessions and a GPU.
//!
//! The mediator validates handles, ranges, rights, quotas and alignment before it calls a back end.
//! The back end checks the *GPU addresses in work* itself.

mod crossed;
mod error;
mod facts;
mod memory;
mod module;
mod pulse;
mod queue;
mod reservation;
mod space;
mod texture;
mod usage;
mod work;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use causeway_memory::SharedMemory;
use causeway_protocol::message::MemoryKind;

pub use causeway_protocol::packet::{ArrayBox, CopyShape, FillShape, LaunchOptions, LaunchShape};
pub use crossed::{Crossed, Moved, NoWay, Way};
pub use error::{BackendError, ModuleError, cause};
pub use facts::DeviceFacts;
pub use memory::{AllocateOptions, Exported, FabricBytes, Memory, Place};
pub use module::{Kernel, Module, Variable};
pub use pulse::{Pieces, Pulse};
pub use queue::{Queue, Recording};
pub use reservation::Reservation;
pub use space::{Space, TensorMapAnswer};
pub use texture::{
    AddressMode, Array, ArrayCharge, ArrayShape, Element, ElementFormat, Sampling, Texture,
    TextureCharge, TextureSource,
};
pub use usage::Usage;
pub use work::{
    ArrayCopy, Fault, Launch, MemoryWork, Progress, Recorded, RecordedArrayCopy, RecordedLaunch,
    Work, is_cooperative, refuse_clusters,
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

    /// Returns the most urgent priority that a queue can have: a negative number, as CUDA counts
    /// priorities, if the back end has `features::PRIORITIES`. The default implementation suits
    /// back ends without priorities.
    fn greatest_priority(&self) -> i32 {
        0
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
    /// does not change. Its place ([`Memory::place`]) is the one that `exported` states.
    ///
    /// # Errors
    /// * `BadMemory` if the descriptor does not lead to memory of the kind and size that `exported`
    ///   states.
    /// * `Unsupported` if the back end cannot import memory of this kind.
    /// * `NoMemory` if this process has no free addresses or file descriptors left.
    /// * `BackEnd` if the driver fails.
    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError>;

    /// Makes memory of `bytes` bytes usable that `handle` names, of another process or machine or
    /// of this process. The content of the memory does not change. Called only if the back end has
    /// `features::FABRIC_IMPORT`; `bytes` is a multiple of [`Attributes::granularity_bytes`]. The
    /// default implementation suits back ends without such handles.
    ///
    /// # Errors
    /// * `BadToken` if the device reaches no memory with this handle.
    /// * `BadMemory` if the memory does not have exactly `bytes` bytes.
    /// * `NoMemory` if this process has no free addresses left.
    /// * `BackEnd` if the driver fails.
    fn import_fabric(
        &self,
        handle: &FabricBytes,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let _ = (handle, bytes);
        Err(memory::no_fabric())
    }

    /// Looks whether the device reaches memory with the fabric handle `handle`. Nothing of it is
    /// kept.
    ///
    /// # Errors
    /// As for [`Self::import_fabric`].
    fn find_fabric(&self, handle: &FabricBytes) -> Result<(), BackendError> {
        let _ = handle;
        Err(memory::no_fabric())
    }

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
    /// ([`Queue::take_usage`]). Queues of other back ends run behind ([`Queue::runs_behind`]).
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

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_protocol::message::{FABRIC_HANDLE_BYTES, Status};

    /// A back end without anything that it need not have.
    struct Plain(Attributes);

    fn no_memory<T>() -> Result<T, BackendError> {
        Err(BackendError::new(Status::NoMemory, "there is none"))
    }

    impl Backend for Plain {
        fn attributes(&self) -> &Attributes {
            &self.0
        }

        fn allocate(
            &self,
            _: MemoryKind,
            _: u64,
            _: AllocateOptions,
        ) -> Result<Arc<dyn Memory>, BackendError> {
            no_memory()
        }

        fn import(&self, _: Exported) -> Result<Arc<dyn Memory>, BackendError> {
            no_memory()
        }

        fn register_ram(
            &self,
            _: Arc<SharedMemory>,
            _: u64,
            _: u64,
        ) -> Result<Arc<dyn Memory>, BackendError> {
            no_memory()
        }

        fn create_space(&self, _: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
            no_memory()
        }
    }

    #[test]
    fn what_a_back_end_does_not_say_is_what_suits_most() {
        let plain = Plain(Attributes {
            name: "plain".into(),
            memory_bytes: 0,
            granularity_bytes: 4096,
            va: 0..0,
            compute_units: 0,
            warp_threads: 0,
            block_threads_max: 0,
            shared_bytes_max: 0,
            features: 0,
        });
        assert_eq!(plain.greatest_priority(), 0);
        let handle = [0; FABRIC_HANDLE_BYTES];
        let found = plain.find_fabric(&handle).map_err(|e| e.status);
        assert_eq!(found, Err(Status::Unsupported));
        let imported = plain.import_fabric(&handle, 4096).map_err(|e| e.status);
        assert_eq!(imported.err(), Some(Status::Unsupported));
        assert_eq!(plain.load_bytes(1000), 16_000);
        assert_eq!(plain.load_bytes(u64::MAX), u64::MAX);
        // Work runs behind, and all of it can be stopped.
        assert!(!plain.shares_time() && !plain.is_poisoned());
        assert!(plain.grace().is_zero());
    }
}
