//! A plain CUDA program that does natively what a guest does through the mediator: `causeway bench
//! gpu` compares the two.
//!
//! The program uses the driver as the driver's documentation recommends, with pinned memory, a
//! stream of its own and a context that spins while it waits. So the comparison is with what is
//! possible without a virtual machine.

mod peers;
mod trial;

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_kernels::line::Line;
use causeway_kernels::{bench, loops};
use causeway_protocol::Access;
use log::Level;
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags};

use super::stream::Launch;
use super::{
    Context, CudaError, Device, Driver, ExecutableGraph, KernelHandle, LoadError, LoadedModule,
    Physical, PhysicalOptions, Reservation, Stream, StreamMaker,
};

pub use peers::NativePeers;
pub use trial::{PairTrial, Speed, TrialError, try_pairs};

/// Number of kernels in the graph, the same as in the recordings of guests.
const GRAPH_KERNELS: u32 = 100;
/// Offset at which the echo kernel stores its answer, the same as in guests.
const ANSWER: u64 = 2048;
const NO_PARAMETERS: Launch<'static> = Launch::one_thread(&[]);
const ALIGNMENT: u64 = 2 << 20;

/// The reason for which the native measurements cannot run.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// The machine has no CUDA driver that this program can use.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A call of the driver failed.
    #[error("cannot measure on the host, without a VM: a call of the CUDA driver failed")]
    Driver(#[from] CudaError),
    /// The driver does not load the benchmark's kernels.
    #[error("the CUDA driver cannot load the benchmark's kernels on the host: {log}")]
    Module {
        /// Log of the driver's compiler.
        log: String,
        /// The driver's error.
        source: CudaError,
    },
    /// Memory of a GPU does not have what was stored to it.
    #[error("memory of a GPU does not have what kernels or copies of the host stored to it")]
    Content,
}

/// Runs the native side of `causeway bench gpu`: CUDA without a virtual machine, in this process.
pub struct Native {
    parts: Mutex<Parts>,
}

/// Fields are dropped in this order.
struct Parts {
    copy: Option<(DeviceBuffer, PinnedBuffer)>,
    graph: ExecutableGraph,
    nothing: KernelHandle,
    echo: KernelHandle,
    stream: Stream,
    _module: LoadedModule,
    context: Arc<Context>,
}

causeway_memory::debug_fields!(Native {});

impl Native {
    /// Opens GPU number `device` and loads the benchmark's kernels.
    ///
    /// # Errors
    /// * [`NativeError::Load`]: there is no usable driver.
    /// * [`NativeError::Module`]: the driver does not load the kernels.
    /// * [`NativeError::Driver`]: another call of the driver failed.
    pub fn open(device: u32) -> Result<Self, NativeError> {
        let device = Device::get(Driver::get()?, device)?;
        let context = Context::create(device)?;
        let maker = StreamMaker {
            context: Arc::clone(&context),
            green: None,
        };
        let stream = maker.stream()?;
        let module = load(&context, bench::PTX)?;
        let function = |name| module.function(name);
        let (nothing, echo) = (function(bench::NOTHING)?, function(bench::ECHO)?);
        let graph = ExecutableGraph::capture(&stream, || {
            (0..GRAPH_KERNELS).try_for_each(|_| stream.launch(nothing, &NO_PARAMETERS))
        })??;
        let parts = Parts {
            copy: None,
            graph,
            nothing,
            echo,
            stream,
            _module: module,
            context,
        };
        Ok(Self {
            parts: Mutex::new(parts),
        })
    }

    /// Does `operations` operations of `bytes` bytes each, of the kind that line `line` of
    /// `causeway bench gpu` measures. Returns the time that they took together, or `None` if the
    /// host has too little memory for them.
    ///
    /// # Errors
    /// The driver's error if one of its calls fails.
    pub fn measure(
        &self,
        line: Line,
        operations: u32,
        bytes: u64,
    ) -> Result<Option<Duration>, CudaError> {
        let (mut parts, n) = (self.parts.lock(), operations);
        let taken = match line {
            Line::Submit => parts.submit(n),
            Line::LaunchAndWait => parts.launch_and_wait(n),
            Line::Pipelined | Line::Recorded => parts.pipelined(n),
            Line::RecordedGraph => parts.graph(n),
            Line::CopyToDevice => parts.copies(n, bytes, true),
            Line::CopyFromDevice => parts.copies(n, bytes, false),
            Line::AllocatePooled | Line::Allocate => parts.allocations(n, bytes),
            Line::AllocateVmm => parts.vmm_allocations(n, bytes),
            Line::Register => return parts.registrations(n, bytes),
            Line::FirstWrite => return Ok(first_writes(n, bytes)),
            Line::AllocateAndWrite => parts.allocations_written(n, bytes),
            Line::EchoDevice | Line::EchoHost | Line::EchoMixed => parts.echoes(n),
            // Of two GPUs: [`NativePeers`].
            _ => return Ok(None),
        };
        taken.map(Some)
    }

    /// Returns the GPU memory that no process uses, in bytes.
    ///
    /// # Errors
    /// The driver's error if it does not report the free memory.
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        self.parts.lock().context.free_bytes()
    }
}

/// Loads the PTX text `ptx`.
fn load(context: &Arc<Context>, ptx: &str) -> Result<LoadedModule, NativeError> {
    let mut image = ptx.as_bytes().to_vec();
    image.push(0);
    LoadedModule::load(context, &image).map_err(|e| NativeError::Module {
        log: e.log,
        source: e.error,
    })
}

impl Parts {
    fn launch(&self) -> Result<(), CudaError> {
        self.stream.launch(self.nothing, &NO_PARAMETERS)
    }

    fn submit(&self, n: u32) -> Result<Duration, CudaError> {
        let taken = timed(n, || self.launch())?;
        self.stream.synchronize()?;
        Ok(taken)
    }

    fn launch_and_wait(&self, n: u32) -> Result<Duration, CudaError> {
        timed(n, || {
            self.launch()?;
            self.stream.synchronize()
        })
    }

    fn pipelined(&self, n: u32) -> Result<Duration, CudaError> {
        let begun = Instant::now();
        (0..n).try_for_each(|_| self.launch())?;
        self.stream.synchronize()?;
        Ok(begun.elapsed())
    }

    /// Launches whole graphs with at least `n` kernels together, and returns the share of the time
    /// that `n` kernels take.
    fn graph(&self, n: u32) -> Result<Duration, CudaError> {
        let graphs = n.div_ceil(GRAPH_KERNELS);
        let begun = Instant::now();
        (0..graphs).try_for_each(|_| self.stream.launch_graph(&self.graph))?;
        self.stream.synchronize()?;
        let taken = begun.elapsed();
        Ok(taken.mul_f64(f64::from(n) / f64::from(graphs * GRAPH_KERNELS)))
    }

    fn copies(&mut self, n: u32, bytes: u64, down: bool) -> Result<Duration, CudaError> {
        let kept = self.copy.take().filter(|(device, _)| device.bytes == bytes);
        let buffers = match kept {
            Some(buffers) => buffers,
            None => (
                DeviceBuffer::new(&self.context, bytes)?,
                PinnedBuffer::new(&self.context, bytes)?,
            ),
        };
        let (device, pinned) = self.copy.insert(buffers);
        let (to, from) = if down {
            (device.address, pinned.address())
        } else {
            (pinned.address(), device.address)
        };
        let begun = Instant::now();
        for _ in 0..n {
            self.stream.copy(to, from, bytes)?;
        }
        self.stream.synchronize()?;
        Ok(begun.elapsed())
    }

    fn allocations(&self, n: u32, bytes: u64) -> Result<Duration, CudaError> {
        timed(n, || DeviceBuffer::new(&self.context, bytes).map(drop))
    }

    fn vmm_allocations(&self, n: u32, bytes: u64) -> Result<Duration, CudaError> {
        let bytes = bytes.next_multiple_of(Physical::granularity_bytes(
            &self.context,
            PhysicalOptions::EXPORTABLE,
        )?);
        timed(n, || {
            let physical = Physical::create(&self.context, bytes, PhysicalOptions::EXPORTABLE)?;
            let reservation = Arc::new(Reservation::new(&self.context, bytes, ALIGNMENT)?);
            let mapped = reservation.map(reservation.range().start, &Arc::new(physical));
            mapped.map_or(Ok(()), |mapped| mapped?.set_access(Access::ReadWrite))
        })
    }

    /// Registers memory that has pages already, so that only the pinning is measured.
    fn registrations(&self, n: u32, bytes: u64) -> Result<Option<Duration>, CudaError> {
        let Some(memory) = FreshMemory::new(bytes) else {
            return Ok(None);
        };
        memory.write();
        let driver = self.context.enter()?;
        let host = memory.base.cast();
        let registered_and_back = || {
            // SAFETY: the memory is mapped, and stays so until it is unregistered. Flag 2: with a
            // GPU address.
            unsafe { driver.mem_host_register(host, memory.bytes, 2) }?;
            // SAFETY: registered above; no work uses it.
            unsafe { driver.mem_host_unregister(host) }
        };
        timed(n, registered_and_back).map(Some)
    }

    fn allocations_written(&self, n: u32, bytes: u64) -> Result<Duration, CudaError> {
        timed(n, || {
            PinnedBuffer::new(&self.context, bytes)?.write();
            Ok(())
        })
    }

    /// Only the conversation is timed, not how it begins and ends.
    fn echoes(&self, n: u32) -> Result<Duration, CudaError> {
        let memory = PinnedBuffer::new(&self.context, 4096)?;
        let mut parameters = [0; 16];
        parameters[..8].copy_from_slice(&memory.address().to_le_bytes());
        parameters[8..].copy_from_slice(&(memory.address() + ANSWER).to_le_bytes());
        memory.store(0, 0);
        memory.store(ANSWER, 0);
        let launch = Launch::one_thread(&parameters);
        self.stream.launch(self.echo, &launch)?;
        let say = |word| {
            memory.store(0, word);
            while memory.load(ANSWER) != word {
                std::hint::spin_loop();
            }
        };
        say(1);
        let begun = Instant::now();
        (0..u64::from(n)).for_each(|word| say(2 + word));
        let taken = begun.elapsed();
        say(bench::ECHO_END);
        self.stream.synchronize()?;
        Ok(taken)
    }
}

/// Does `operation` `n` times, and returns the time that all of them take.
fn timed(
    n: u32,
    mut operation: impl FnMut() -> Result<(), CudaError>,
) -> Result<Duration, CudaError> {
    let begun = Instant::now();
    (0..n).try_for_each(|_| operation())?;
    Ok(begun.elapsed())
}

/// Device memory as most programs allocate it.
struct DeviceBuffer {
    context: Arc<Context>,
    address: u64,
    bytes: u64,
}

impl DeviceBuffer {
    fn new(context: &Arc<Context>, bytes: u64) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        let mut address = 0;
        // SAFETY: stores an address, which `drop` frees.
        unsafe { driver.mem_alloc(&mut address, bytes as usize) }?;
        Ok(Self {
            context: Arc::clone(context),
            address,
            bytes,
        })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; work that uses it was waited for.
        let free = |driver: &Driver| unsafe { driver.mem_free(self.address) };
        self.context.release(Level::Debug, "device memory", free);
    }
}

/// Host memory that the driver has allocated and pinned.
struct PinnedBuffer {
    context: Arc<Context>,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: an address range of this process, reached by volatile accesses only.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    fn new(context: &Arc<Context>, bytes: u64) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        let mut base = std::ptr::null_mut();
        // SAFETY: stores a pointer, which `drop` frees. Flags 1 and 2: for all contexts, and with a
        // GPU address.
        unsafe { driver.mem_host_alloc(&mut base, bytes as usize, 1 | 2) }?;
        Ok(Self {
            context: Arc::clone(context),
            base: base.cast(),
            bytes: bytes as usize,
        })
    }

    /// Returns its GPU address: with unified addressing, memory that the driver allocates has one
    /// address.
    fn address(&self) -> u64 {
        self.base as u64
    }

    fn write(&self) {
        write_words(self.base, self.bytes);
    }

    /// Returns a pointer to the word at `offset`.
    fn word(&self, offset: u64) -> *mut u64 {
        self.base.wrapping_add(offset as usize).cast()
    }

    fn store(&self, offset: u64, word: u64) {
        // SAFETY: callers stay within the first page, which the smallest buffer has; aligned and
        // volatile.
        unsafe { self.word(offset).write_volatile(word) };
    }

    fn load(&self, offset: u64) -> u64 {
        // SAFETY: as for `store`.
        unsafe { self.word(offset).read_volatile() }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; work that uses it was waited for.
        let free = |driver: &Driver| unsafe { driver.mem_free_host(self.base.cast()) };
        self.context.release(Level::Debug, "pinned memory", free);
    }
}

/// Anonymous memory that has no pages yet: what `malloc` gives for this size.
struct FreshMemory {
    base: *mut u8,
    bytes: usize,
}

impl FreshMemory {
    fn new(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, rights, MapFlags::PRIVATE)
        };
        Some(Self {
            base: base.ok()?.cast(),
            bytes,
        })
    }

    fn write(&self) {
        write_words(self.base, self.bytes);
    }
}

impl Drop for FreshMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
    }
}

fn first_writes(n: u32, bytes: u64) -> Option<Duration> {
    let mut taken = Duration::ZERO;
    for _ in 0..n {
        let memory = FreshMemory::new(bytes)?;
        let begun = Instant::now();
        memory.write();
        taken += begun.elapsed();
    }
    Some(taken)
}

/// Stores to every word, by the machine code that guests use.
fn write_words(base: *mut u8, bytes: usize) {
    let words = bytes / 8 / loops::WORDS_PER_TURN * loops::WORDS_PER_TURN;
    // SAFETY: page-aligned memory of the caller's of at least as many words, to which nothing
    // refers.
    unsafe { loops::store(base.cast(), words, 1) };
}
