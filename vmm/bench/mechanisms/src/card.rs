//! A small GPU: memory, kernels and one queue of a back end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_bench_workloads::{KERNELS, Kernel, Shape};
use causeway_kernels::PARAMETER_BYTES_MAX;
use causeway_mediator::backend::{
    self, AllocateOptions, Backend, BackendError, Fault, Launch, LaunchShape, Memory, Module,
    ModuleError, Progress, Queue, Space, Work,
};
use causeway_memory::{Mapping, MemoryError};
use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;

/// Most allocations at a time.
const ALLOCATIONS_MAX: usize = 64;
/// Most bytes of all allocations of a card. Three cards fit into the memory of a back end, so that
/// none can use up the memory of another.
pub(crate) const BYTES_MAX: u64 = 320 << 20;

/// Reason why a card refuses an operation.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The back end refused it.
    #[error("the back end refuses a request")]
    Backend(#[from] BackendError),
    /// A kernel cannot be loaded.
    #[error("the back end cannot load the GPU module with kernel `{kernel}`")]
    Module {
        /// Its name.
        kernel: &'static str,
        /// Why.
        source: ModuleError,
    },
    /// The module does not have its kernel.
    #[error("the module of {kernel} does not contain the kernel")]
    Kernel {
        /// Its name.
        kernel: &'static str,
    },
    /// Memory cannot be mapped.
    #[error("cannot map memory")]
    Map(#[from] MemoryError),
    /// CPUs cannot map the memory of the back end.
    #[error("the CPU cannot map memory of this back end")]
    Invisible,
    /// The card's limit is reached.
    #[error("invalid allocation of {bytes} bytes: at most {ALLOCATIONS_MAX} allocations with {} MiB in all", BYTES_MAX >> 20)]
    Full {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The allocation does not exist.
    #[error("allocation {id} does not exist")]
    NoMemory {
        /// Identifier.
        id: u64,
    },
    /// The arguments do not fit the kernel.
    #[error("{count} arguments do not fit {kernel}")]
    Arguments {
        /// Name of the kernel.
        kernel: &'static str,
        /// How many there are.
        count: usize,
    },
    /// The back end has too little memory.
    #[error("the mechanisms take {} MiB of GPU memory, but the limit is {} MiB: raise it with --gpu …,memory=1GiB", wanted >> 20, bytes >> 20)]
    Small {
        /// Bytes that it has.
        bytes: u64,
        /// Bytes that are needed.
        wanted: u64,
    },
    /// The launch has no threads.
    #[error("a launch without threads: {shape:?}")]
    Empty {
        /// Its grid and block.
        shape: Shape,
    },
    /// Earlier work failed.
    #[error("the work failed: {0:?}")]
    Fault(Fault),
}

/// Memory of a card, seen by the CPU.
pub(crate) struct CardMemory {
    mapping: Mapping,
    /// Address for kernels.
    address: u64,
    bytes: u64,
    _memory: Arc<dyn Memory>,
}

impl CardMemory {
    /// Returns the mapping in this process. Kernels may write to the memory at any time.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Returns the address for kernels.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the size in bytes, rounded up to the granularity of the back end.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A GPU with a session of its own on a back end. Its caller is not trusted.
pub(crate) struct Card {
    backend: Arc<dyn Backend>,
    space: Arc<dyn Space>,
    queue: Box<dyn Queue>,
    functions: Vec<Arc<dyn backend::Kernel>>,
    _modules: Vec<Arc<dyn Module>>,
    memory: BTreeMap<u64, Arc<CardMemory>>,
    next_id: u64,
    held_bytes: u64,
    /// Whether there may be work under way.
    busy: bool,
    launched: u64,
}

impl Card {
    /// Returns a card on a back end, with all kernels loaded. Work ends soon after `stop` is set.
    ///
    /// # Errors
    /// [`CardError::Backend`] if the back end refuses an object, `Module` or `Kernel` if it cannot
    /// load a kernel.
    pub fn new(backend: &Arc<dyn Backend>, stop: &Arc<AtomicBool>) -> Result<Self, CardError> {
        let space = backend.create_space(Arc::clone(stop))?;
        let mut modules = Vec::new();
        let mut functions = Vec::new();
        for kernel in KERNELS {
            let name = kernel.name();
            let module = space
                .load_module(kernel.ptx().as_bytes())
                .map_err(|source| CardError::Module {
                    kernel: name,
                    source,
                })?;
            let function = module.function(name);
            functions.push(function.ok_or(CardError::Kernel { kernel: name })?);
            modules.push(module);
        }
        Ok(Self {
            backend: Arc::clone(backend),
            queue: space.create_queue()?,
            space,
            functions,
            _modules: modules,
            memory: BTreeMap::new(),
            next_id: 1,
            held_bytes: 0,
            busy: false,
            launched: 0,
        })
    }

    /// Allocates memory, maps it for kernels and the CPU, and returns its identifier.
    ///
    /// # Errors
    /// [`CardError::Full`] if the card's limit is reached, `Backend` or `Map` if the back end
    /// refuses, `Invisible` if CPUs cannot access its memory.
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

    /// Waits for pending work, then frees memory.
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

    /// Returns an allocation without waiting for pending work.
    ///
    /// # Errors
    /// [`CardError::NoMemory`] if there is no such allocation.
    pub fn memory(&self, id: u64) -> Result<&Arc<CardMemory>, CardError> {
        self.memory.get(&id).ok_or(CardError::NoMemory { id })
    }

    /// Waits for all pending work, then returns an allocation.
    ///
    /// # Errors
    /// [`CardError::NoMemory`] if there is no such allocation, `Fault` if earlier work failed.
    pub fn settled(&mut self, id: u64) -> Result<&Arc<CardMemory>, CardError> {
        self.synchronize()?;
        self.memory(id)
    }

    /// Launches a kernel. What its arguments point to is checked by the back end.
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
        let function = &self.functions[kernel as usize];
        if shape.grid.iter().chain(&shape.block).any(|n| *n == 0) {
            return Err(CardError::Empty { shape });
        }
        let mut block = [0; PARAMETER_BYTES_MAX];
        let parameters = pack(&**function, arguments, &mut block);
        let parameters = parameters.ok_or(CardError::Arguments {
            kernel: kernel.name(),
            count: arguments.len(),
        })?;
        let shape = LaunchShape {
            grid: [shape.grid[0], shape.grid[1], 1],
            block: [shape.block[0], shape.block[1], 1],
            shared_bytes: 0,
        };
        let launch = Launch::new(function, shape, parameters).map_err(CardError::Fault)?;
        self.busy = true;
        self.launched += 1;
        self.queue
            .submit(Work::Launch(launch))
            .map_err(CardError::Fault)
    }

    /// Begins all work in the back end. Returns the number of finished launches once all are done.
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

    /// Waits until everything is done.
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
    function: &dyn backend::Kernel,
    arguments: &[u64],
    block: &'b mut [u8; PARAMETER_BYTES_MAX],
) -> Option<&'b [u8]> {
    let parameters = function.parameters();
    if parameters.len() != arguments.len() {
        return None;
    }
    for (parameter, argument) in parameters.iter().zip(arguments) {
        let bytes = usize::from(parameter.size);
        let start = usize::from(parameter.offset);
        let room = block.get_mut(start..start + bytes)?;
        room.copy_from_slice(argument.to_le_bytes().get(..bytes)?);
    }
    block.get(..function.parameter_bytes() as usize)
}
