//! A small GPU: memory, kernels and one queue of a back end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_bench_workloads::{KERNELS, Kernel, Shape};
use causeway_kernels::PARAMETER_BYTES_MAX;
use causeway_mediator::backend::{
    self, AllocateOptions, Backend, BackendError, Fault, Launch, LaunchShape, Memory, Module,
    ModuleError, Progress, Queue, Reservation, Space, Work,
};
use causeway_memory::{Mapping, MemoryError};
use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;

/// Maximum number of allocations of a card at a time.
const ALLOCATIONS_MAX: usize = 64;
/// Maximum size of all allocations of a card together, in bytes. Three cards fit into the memory of
/// a back end, so that none can use up the memory of another.
pub(crate) const BYTES_MAX: u64 = 320 << 20;

/// Why an operation on a card fails. A card is a GPU as a benchmark uses it: an address space,
/// memory and one queue on a back end.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The back end refuses the operation.
    #[error("the back end refused an operation that the benchmark needs, such as an allocation")]
    Backend(#[from] BackendError),
    /// The back end cannot load the module of a kernel.
    #[error("the back end cannot load the GPU module with kernel `{kernel}`")]
    Module {
        /// Name of the kernel.
        kernel: &'static str,
        /// Why the back end refuses the module.
        source: ModuleError,
    },
    /// The module of a kernel does not contain the kernel.
    #[error("the GPU module for kernel `{kernel}` does not contain this kernel")]
    Kernel {
        /// Name of the kernel.
        kernel: &'static str,
    },
    /// Memory of the back end cannot be mapped into this process.
    #[error("cannot map memory of the back end into the benchmark's process")]
    Map(#[from] MemoryError),
    /// The back end has memory that CPUs cannot access.
    #[error("the benchmark needs memory that CPUs can access, and this back end has none")]
    Invisible,
    /// The card has too many allocations, or this allocation is too large for it.
    #[error(
        "cannot allocate {bytes} bytes for the benchmark: each mechanism may have at most \
         {ALLOCATIONS_MAX} allocations, and at most {mib} MiB in total",
        mib = BYTES_MAX >> 20
    )]
    Full {
        /// Size of the refused allocation in bytes.
        bytes: u64,
    },
    /// No allocation has this identifier.
    #[error("the guest of the benchmark names allocation {id}, which does not exist")]
    NoMemory {
        /// Identifier that a caller gave.
        id: u64,
    },
    /// Number or size of the arguments does not match the kernel's parameters.
    #[error(
        "cannot launch kernel `{kernel}` with {count} arguments: their number or sizes do not \
         match the kernel's parameters"
    )]
    Arguments {
        /// Name of the kernel.
        kernel: &'static str,
        /// Number of arguments.
        count: usize,
    },
    /// The back end has less memory than the benchmark needs.
    #[error(
        "the benchmark needs {wanted_mib} MiB of GPU memory, but the limit is {limit_mib} MiB: \
         raise the limit with --gpu …,memory=1GiB",
        wanted_mib = wanted >> 20,
        limit_mib = bytes >> 20
    )]
    Small {
        /// Memory of the back end in bytes.
        bytes: u64,
        /// Memory that the benchmark needs, in bytes.
        wanted: u64,
    },
    /// A dimension of a launch's grid or block is zero.
    #[error("cannot launch a kernel whose grid or block has a dimension of zero: {shape:?}")]
    Empty {
        /// Grid and block of the launch.
        shape: Shape,
    },
    /// Work that was submitted earlier has failed.
    #[error("GPU work of the benchmark failed: {0:?}")]
    Fault(Fault),
}

/// An allocation of a card, mapped for the CPU and for kernels.
pub(crate) struct CardMemory {
    /// Mapping of the allocation in this process. Kernels may write to the memory at any time.
    pub mapping: Mapping,
    /// GPU address of the allocation, by which kernels access it.
    pub address: u64,
    /// Size of the allocation in bytes, rounded up to the allocation granularity of the back end.
    pub bytes: u64,
    _memory: Arc<dyn Memory>,
}

/// A small GPU for a benchmark: an address space, memory, kernels and one queue on a back end.
/// Arguments from guests are not trusted.
pub(crate) struct Card {
    backend: Arc<dyn Backend>,
    space: Arc<dyn Space>,
    queue: Box<dyn Queue>,
    kernels: Vec<Arc<dyn backend::Kernel>>,
    _modules: Vec<Arc<dyn Module>>,
    memory: BTreeMap<u64, Arc<CardMemory>>,
    next_id: u64,
    held_bytes: u64,
    /// Whether there may be work under way.
    busy: bool,
    launched: u64,
}

impl Card {
    /// Returns a card on `backend` with the kernels of all workloads loaded. Kernels that run on
    /// the card end soon after another thread sets `stop`.
    ///
    /// # Errors
    /// [`CardError::Backend`] if the back end cannot create an address space or a queue, `Module`
    /// or `Kernel` if it cannot load a kernel.
    pub fn new(backend: &Arc<dyn Backend>, stop: &Arc<AtomicBool>) -> Result<Self, CardError> {
        let space = backend.create_space(Arc::clone(stop))?;
        let mut modules = Vec::new();
        let mut kernels = Vec::new();
        for kernel in KERNELS {
            let name = kernel.name();
            let module = space
                .load_module(kernel.ptx().as_bytes(), &mut Reservation::unlimited())
                .map_err(|source| CardError::Module {
                    kernel: name,
                    source,
                })?;
            let loaded = module.kernel(name);
            kernels.push(loaded.ok_or(CardError::Kernel { kernel: name })?);
            modules.push(module);
        }
        Ok(Self {
            backend: Arc::clone(backend),
            queue: space.create_queue(0)?,
            space,
            kernels,
            _modules: modules,
            memory: BTreeMap::new(),
            next_id: 1,
            held_bytes: 0,
            busy: false,
            launched: 0,
        })
    }

    /// Allocates at least `bytes` bytes, maps them for kernels and the CPU, and returns an
    /// identifier for the allocation.
    ///
    /// # Errors
    /// [`CardError::Full`] if the card would have too many allocations or too much memory,
    /// `Backend` if the back end cannot allocate or map the memory for kernels, `Map` if it cannot
    /// be mapped into this process, `Invisible` if CPUs cannot access memory of the back end.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, CardError> {
        let granularity = self.backend.attributes().granularity_bytes;
        let rounded = bytes.max(1).checked_next_multiple_of(granularity);
        let fits = |bytes: &u64| {
            self.memory.len() < ALLOCATIONS_MAX && *bytes <= BYTES_MAX - self.held_bytes
        };
        let rounded = rounded.filter(fits).ok_or(CardError::Full { bytes })?;
        let options = AllocateOptions::default();
        let memory = self.backend.allocate(MemoryKind::Host, rounded, options)?;
        let backing = memory.backing();
        let (object, offset) = backing
            .as_ref()
            .and_then(|backing| backing.host())
            .ok_or(CardError::Invisible)?;
        let mapping = object.map(offset, rounded, Access::ReadWrite)?;
        let address = self
            .space
            .map(None, &memory, 0, rounded, Access::ReadWrite)?;
        let id = self.next_id;
        self.next_id += 1;
        self.held_bytes += rounded;
        let memory = CardMemory {
            mapping,
            address,
            bytes: rounded,
            _memory: memory,
        };
        self.memory.insert(id, Arc::new(memory));
        Ok(id)
    }

    /// Waits until all launched kernels have ended, then frees the allocation with identifier `id`.
    ///
    /// # Errors
    /// [`CardError::NoMemory`] if there is no such allocation, `Backend` if the back end refuses.
    pub fn free(&mut self, id: u64) -> Result<(), CardError> {
        self.synchronize()?;
        let memory = self.memory(id)?;
        let (address, bytes) = (memory.address, memory.bytes);
        self.space.unmap(address)?;
        self.memory.remove(&id);
        self.held_bytes -= bytes;
        Ok(())
    }

    /// Returns the allocation with identifier `id`. Kernels may still use it, because this call
    /// does not wait for them.
    ///
    /// # Errors
    /// [`CardError::NoMemory`] if there is no such allocation.
    pub fn memory(&self, id: u64) -> Result<&Arc<CardMemory>, CardError> {
        self.memory.get(&id).ok_or(CardError::NoMemory { id })
    }

    /// Waits until all launched kernels have ended, then returns the allocation with identifier
    /// `id`.
    ///
    /// # Errors
    /// [`CardError::NoMemory`] if there is no such allocation, `Fault` if earlier work failed.
    pub fn settled(&mut self, id: u64) -> Result<&Arc<CardMemory>, CardError> {
        self.synchronize()?;
        self.memory(id)
    }

    /// Launches a kernel and does not wait for its end. The back end checks the addresses among its
    /// arguments.
    ///
    /// # Errors
    /// [`CardError::Empty`] if the shape has no thread, `Arguments` if the arguments do not fit the
    /// kernel, `Backend` if the back end refuses, `Fault` if earlier work failed.
    pub fn launch(
        &mut self,
        kernel: Kernel,
        shape: Shape,
        arguments: &[u64],
    ) -> Result<(), CardError> {
        let loaded = &self.kernels[kernel as usize];
        if shape.grid.iter().chain(&shape.block).any(|n| *n == 0) {
            return Err(CardError::Empty { shape });
        }
        let mut block = [0; PARAMETER_BYTES_MAX];
        let parameters = pack(&**loaded, arguments, &mut block);
        let parameters = parameters.ok_or(CardError::Arguments {
            kernel: kernel.name(),
            count: arguments.len(),
        })?;
        let shape = LaunchShape {
            grid: [shape.grid[0], shape.grid[1], 1],
            block: [shape.block[0], shape.block[1], 1],
            shared_bytes: 0,
        };
        let launch = Launch::new(loaded, shape, parameters).map_err(CardError::Fault)?;
        self.busy = true;
        self.launched += 1;
        self.queue
            .submit(Work::Launch(launch))
            .map_err(CardError::Fault)
    }

    /// Starts all submitted launches in the back end without waiting for them. Returns the number
    /// of launches so far if all of them have ended, else `None`.
    ///
    /// # Errors
    /// [`CardError::Fault`] if work failed.
    pub fn completed(&mut self) -> Result<Option<u64>, CardError> {
        if self.busy {
            self.queue.flush().map_err(CardError::Fault)?;
            self.busy = self.queue.poll().map_err(CardError::Fault)? == Progress::Busy;
        }
        Ok((!self.busy).then_some(self.launched))
    }

    /// Waits until all submitted work has ended.
    ///
    /// # Errors
    /// [`CardError::Fault`] if work failed.
    pub fn synchronize(&mut self) -> Result<(), CardError> {
        if self.busy {
            self.queue.finish().map_err(CardError::Fault)?;
            self.busy = false;
        }
        Ok(())
    }
}

/// Packs arguments as the kernel wants them; none if they are too few or too many.
fn pack<'b>(
    kernel: &dyn backend::Kernel,
    arguments: &[u64],
    block: &'b mut [u8; PARAMETER_BYTES_MAX],
) -> Option<&'b [u8]> {
    let parameters = kernel.parameters();
    if parameters.len() != arguments.len() {
        return None;
    }
    for (parameter, argument) in parameters.iter().zip(arguments) {
        let bytes = usize::from(parameter.size);
        let start = usize::from(parameter.offset);
        let room = block.get_mut(start..start + bytes)?;
        room.copy_from_slice(argument.to_le_bytes().get(..bytes)?);
    }
    block.get(..kernel.parameter_bytes() as usize)
}
