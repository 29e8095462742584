//! The native side of `causeway bench gpu --peer`: what two GPUs do with memory of each other in a
//! plain CUDA program, whose memory is mapped for both (`cuMemMap`, `cuMemSetAccess`).
//!
//! As in the guest, each sample writes other content than the memory had before. The GPU that has
//! the memory then checks all of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_kernels::line::{Line, PeerLine, PeerWork};
use causeway_kernels::peers::{self, DISTANCE, THREADS, blocks, end_of_links};
use causeway_mediator::backend::LaunchShape;
use causeway_protocol::Access;
use parking_lot::Mutex;

use super::{ALIGNMENT, NativeError, PinnedBuffer, load};
use crate::driver::stream::Launch;
use crate::driver::{
    Context, CudaError, Device, Driver, KernelHandle, LoadedModule, MappedRange, Stream,
    StreamMaker,
};

/// Runs the native side of `causeway bench gpu --peer`, in this process.
pub struct NativePeers {
    parts: Mutex<Parts>,
}

causeway_memory::debug_fields!(NativePeers {});

struct Parts {
    gpus: [Gpu; 2],
    bytes: u64,
    /// What tells the content of one sample from that of others.
    mask: u64,
    /// The word from which links are followed.
    first: u64,
    /// Whether the shared memory of each GPU has links.
    linked: [bool; 2],
}

/// One of the two GPUs. Fields are dropped in this order.
struct Gpu {
    /// Memory of this GPU, which the other one reaches, too.
    shared: MappedRange,
    /// Memory that only this GPU reaches.
    own: MappedRange,
    /// Host memory for a kernel's result.
    page: PinnedBuffer,
    store: KernelHandle,
    check: KernelHandle,
    link: KernelHandle,
    follow: KernelHandle,
    stream: Stream,
    _module: LoadedModule,
    context: Arc<Context>,
}

impl NativePeers {
    /// Opens two GPUs, given by their numbers, and lets each reach `bytes` bytes of the other.
    ///
    /// # Errors
    /// As for [`super::Native::open`].
    pub fn open(devices: [u32; 2], bytes: u64) -> Result<Self, NativeError> {
        let [one, other] = devices.map(|device| Gpu::open(device, bytes));
        let gpus = [one?, other?];
        for (user, owner) in [(0, 1), (1, 0)] {
            let user = gpus[user].context.device();
            gpus[owner].shared.set_access_of(user, Access::ReadWrite)?;
        }
        let parts = Parts {
            gpus,
            bytes,
            mask: 0,
            first: 0,
            linked: [false; 2],
        };
        Ok(Self {
            parts: Mutex::new(parts),
        })
    }

    /// Does `operations` operations of `bytes` bytes each, of the kind that line `line` of
    /// `causeway bench gpu --peer` measures. Returns the time that they took together, or `None` if
    /// the line is of one GPU, or needs more memory than there is.
    ///
    /// # Errors
    /// [`NativeError::Driver`] if a call of the driver fails, [`NativeError::Content`] if memory
    /// does not have what was stored.
    pub fn measure(
        &self,
        line: Line,
        operations: u32,
        bytes: u64,
    ) -> Result<Option<Duration>, NativeError> {
        let mut parts = self.parts.lock();
        match line.peers() {
            Some(line) if bytes <= parts.bytes => parts.measure(line, operations, bytes).map(Some),
            _ => Ok(None),
        }
    }
}

impl Parts {
    fn measure(&mut self, line: PeerLine, n: u32, bytes: u64) -> Result<Duration, NativeError> {
        let words = match line.work {
            PeerWork::Follow => self.bytes / 8,
            _ => bytes / 8,
        };
        self.mask += 1;
        self.fill(line, words)?;
        let begun = Instant::now();
        self.submit(line, n, words)?;
        self.gpus[line.user].stream.synchronize()?;
        let taken = begun.elapsed();
        match self.is_right(line, n, words)? {
            true => Ok(taken),
            false => Err(NativeError::Content),
        }
    }

    /// Puts content into the memory, as the GPU that has it, and into that of the user's own.
    fn fill(&mut self, line: PeerLine, words: u64) -> Result<(), CudaError> {
        let mask = self.mask;
        let (user, owner) = (&self.gpus[line.user], &self.gpus[line.owner]);
        let (at, own) = (owner.shared.address(), user.own.address());
        match line.work {
            PeerWork::Store => owner.store(at, words, !mask)?,
            PeerWork::CopyTo => {
                owner.store(at, words, !mask)?;
                user.store(own, words, mask)?;
            }
            PeerWork::CopyOf => {
                owner.store(at, words, mask)?;
                user.store(own, words, !mask)?;
            }
            PeerWork::Load => {
                owner.store(at, words, mask)?;
                // The one word that loads must find.
                owner.stream.fill(at + 8 * (words - 1), 8, 0, 4)?;
            }
            PeerWork::Follow if self.linked[line.owner] => {}
            PeerWork::Follow => owner.launch(owner.link, &[at, words, DISTANCE], words)?,
        }
        self.linked[line.owner] = line.work == PeerWork::Follow;
        user.page.store(0, 0);
        owner.stream.synchronize()?;
        user.stream.synchronize()
    }

    fn submit(&self, line: PeerLine, n: u32, words: u64) -> Result<(), CudaError> {
        let user = &self.gpus[line.user];
        let (at, own) = (self.gpus[line.owner].shared.address(), user.own.address());
        let repeated = |work: &dyn Fn() -> Result<(), CudaError>| (0..n).try_for_each(|_| work());
        match line.work {
            PeerWork::Store => repeated(&|| user.store(at, words, self.mask)),
            PeerWork::Load => repeated(&|| user.check(at, words, self.mask)),
            PeerWork::CopyTo => repeated(&|| user.stream.copy(at, own, 8 * words)),
            PeerWork::CopyOf => repeated(&|| user.stream.copy(own, at, 8 * words)),
            PeerWork::Follow => {
                let values = [at, self.first, n.into(), user.page.address()];
                let parameters = packed(&values);
                let launch = Launch::one_thread(&parameters);
                user.stream.launch(user.follow, &launch)
            }
        }
    }

    /// Returns whether memory, or what was loaded, is as it must be.
    fn is_right(&mut self, line: PeerLine, n: u32, words: u64) -> Result<bool, CudaError> {
        let (user, owner) = (&self.gpus[line.user], &self.gpus[line.owner]);
        match line.work {
            PeerWork::Store | PeerWork::CopyTo => {
                owner.has(owner.shared.address(), words, self.mask)
            }
            PeerWork::CopyOf => user.has(user.own.address(), words, self.mask),
            PeerWork::Load => Ok(user.page.load(0) == n.into()),
            PeerWork::Follow => {
                let end = end_of_links(self.first, n.into(), words);
                let found = user.page.load(0);
                // No line that a cache has from this sample.
                self.first = end;
                Ok(found == end)
            }
        }
    }
}

impl Gpu {
    fn open(device: u32, bytes: u64) -> Result<Self, NativeError> {
        let context = Context::create(Device::get(Driver::get()?, device)?)?;
        let maker = StreamMaker {
            context: Arc::clone(&context),
            green: None,
        };
        let module = load(&context, peers::PTX)?;
        let kernel = |name| module.function(name);
        Ok(Self {
            shared: MappedRange::allocate(&context, bytes, ALIGNMENT)?,
            own: MappedRange::allocate(&context, bytes, ALIGNMENT)?,
            page: PinnedBuffer::new(&context, 4096)?,
            store: kernel(peers::STORE_PATTERN)?,
            check: kernel(peers::CHECK_PATTERN)?,
            link: kernel(peers::LINK_WORDS)?,
            follow: kernel(peers::FOLLOW_LINKS)?,
            stream: maker.stream()?,
            _module: module,
            context,
        })
    }

    /// Launches a kernel of many threads that works on `words` words.
    fn launch(&self, kernel: KernelHandle, values: &[u64], words: u64) -> Result<(), CudaError> {
        let parameters = packed(values);
        let launch = Launch {
            shape: LaunchShape {
                grid: [blocks(words), 1, 1],
                block: [THREADS, 1, 1],
                shared_bytes: 0,
            },
            ..Launch::one_thread(&parameters)
        };
        self.stream.launch(kernel, &launch)
    }

    fn store(&self, at: u64, words: u64, mask: u64) -> Result<(), CudaError> {
        self.launch(self.store, &[at, words, mask], words)
    }

    fn check(&self, at: u64, words: u64, mask: u64) -> Result<(), CudaError> {
        let values = [at, words, mask, self.page.address()];
        self.launch(self.check, &values, words)
    }

    /// Returns whether the words at `at` are those of the pattern.
    fn has(&self, at: u64, words: u64, mask: u64) -> Result<bool, CudaError> {
        self.page.store(0, 0);
        self.check(at, words, mask)?;
        self.stream.synchronize()?;
        Ok(self.page.load(0) == 0)
    }
}

/// Returns the parameter block of a kernel whose parameters are 64-bit numbers.
fn packed(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
