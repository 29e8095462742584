//! How fast pairs of GPUs copy to each other, and by which link, for `causeway doctor`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_protocol::Access;

use super::{ALIGNMENT, DeviceBuffer, PinnedBuffer};
use crate::driver::StreamMaker;
use crate::driver::nvml::Nvml;
use crate::driver::{Context, CudaError, Device, Driver, LoadError, MappedRange, Stream};

/// Size of the copies that are timed for bandwidth.
const BYTES: u64 = 64 << 20;
/// Copies with one wait, so that it does not count.
const COPIES: u32 = 4;
/// Passes of such copies at most; the best one counts.
const PASSES: u32 = 4;
/// Copies of 4 bytes with a wait for each at most; the median counts.
const SMALL_COPIES: u32 = 200;
/// When no further pass, or small copy, of one direction begins.
const ENOUGH: Duration = Duration::from_millis(100);
/// When no further pair is tried.
const ALL: Duration = Duration::from_secs(10);
/// Memory that a GPU must have free, so that nobody else misses what a trial takes.
const FREE_BYTES: u64 = 4 * BYTES;
/// What the memory of both sides has before copies.
const WORDS: [u32; 2] = [0x5ca1_ab1e, 0x0ddb_a11e];

/// What was found out about a pair of GPUs.
#[derive(Debug)]
pub struct PairTrial {
    /// Their numbers counted by PCI address, the lower one first.
    pub gpus: [u32; 2],
    /// The link between them in words; `None` if the host has no NVML that tells.
    pub link: Option<&'static str>,
    /// How fast copies from memory of the first to that of the second are, and back.
    pub ways: [Result<Speed, TrialError>; 2],
}

/// How fast one GPU copies to memory of another: by itself if it reaches that memory, else as the
/// driver does it, through memory of the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Bytes per nanosecond of the best copies of 64 MiB.
    pub gb_per_s: f64,
    /// Median time of a copy of 4 bytes and a wait for it, in nanoseconds.
    pub latency_ns: f64,
}

/// Why copies between two GPUs were not timed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TrialError {
    /// One of them has too little memory free.
    #[error("GPU {gpu} has {free_mib} MiB free, and a trial wants {wanted_mib} MiB")]
    Memory {
        /// Its number.
        gpu: u32,
        /// What it must have free, in MiB.
        wanted_mib: u64,
        /// What it has free, in MiB.
        free_mib: u64,
    },
    /// Other pairs took the time.
    #[error("no time: all pairs together have {} s", ALL.as_secs())]
    Time,
    /// Copies have brought something else than what was there.
    #[error("copies bring WRONG DATA")]
    Content,
    /// A call of the driver failed.
    #[error("the driver: {0}")]
    Driver(#[from] CudaError),
}

/// Tries all pairs of GPUs, counted by PCI address, and hands each to `tell` at once. Takes 10 s at
/// most, or a little more, and 64 MiB of each GPU of a pair.
///
/// Creates a context on each GPU, and the driver starts threads for that: call this in a process
/// that ends soon.
///
/// # Errors
/// [`LoadError`] if there is no usable driver.
pub fn try_pairs(mut tell: impl FnMut(PairTrial)) -> Result<(), LoadError> {
    let driver = Driver::get()?;
    let count = Device::count(driver).unwrap_or(0);
    let nvml = Nvml::load();
    let begun = Instant::now();
    let open = |index| Device::get(driver, index).and_then(Context::primary);
    let gpus: Vec<_> = (0..count).map(open).collect();
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| [one, other]));
    for numbers in pairs {
        let [one, other] = numbers.map(|number| (number, &gpus[number as usize]));
        let way = |from, to| match begun.elapsed() < ALL {
            true => way(from, to),
            false => Err(TrialError::Time),
        };
        tell(PairTrial {
            gpus: numbers,
            link: nvml.as_ref().and_then(|nvml| link(nvml, [one.1, other.1])),
            ways: [way(one, other), way(other, one)],
        });
    }
    Ok(())
}

/// A GPU with a context, or why it has none.
type Opened = Result<Arc<Context>, CudaError>;

fn link(nvml: &Nvml, gpus: [&Opened; 2]) -> Option<&'static str> {
    let address = |gpu: &Opened| gpu.as_ref().ok()?.device().pci_address().ok();
    let [one, other] = gpus.map(address);
    nvml.link([&one?, &other?])
}

/// Times copies from memory of one GPU to that of another.
fn way(from: (u32, &Opened), to: (u32, &Opened)) -> Result<Speed, TrialError> {
    let (from, to) = (with_room(from)?, with_room(to)?);
    let stream = stream(from)?;
    if from.device().can_access(to.device())? {
        let [source, target] = [from, to].map(|gpu| MappedRange::allocate(gpu, BYTES, ALIGNMENT));
        let (source, target) = (source?, target?);
        target.set_access_of(from.device(), Access::ReadWrite)?;
        let (at, end) = (source.address(), target.address());
        return speed(&stream, to, [at, end], |bytes| stream.copy(end, at, bytes));
    }
    let [source, target] = [from, to].map(|gpu| DeviceBuffer::new(gpu, BYTES));
    let (at, end) = (source?, target?);
    speed(&stream, to, [at.address, end.address], |bytes| {
        stream.copy_across((end.address, to), (at.address, from), bytes)
    })
}

/// Returns the context of a GPU, given with its number, if it has memory for a trial.
fn with_room((gpu, opened): (u32, &Opened)) -> Result<&Arc<Context>, TrialError> {
    let context = opened.as_ref().map_err(Clone::clone)?;
    let free_bytes = context.free_bytes()?;
    if free_bytes < FREE_BYTES {
        return Err(TrialError::Memory {
            gpu,
            free_mib: free_bytes >> 20,
            wanted_mib: FREE_BYTES >> 20,
        });
    }
    Ok(context)
}

/// Times `copy`, which copies bytes from the first address to the second, and checks that it does.
fn speed(
    stream: &Stream,
    to: &Arc<Context>,
    [source, target]: [u64; 2],
    copy: impl Fn(u64) -> Result<(), CudaError>,
) -> Result<Speed, TrialError> {
    let theirs = self::stream(to)?;
    stream.fill(source, BYTES, WORDS[0], 4)?;
    theirs.fill(target, BYTES, WORDS[1], 4)?;
    theirs.synchronize()?;
    let pass = || {
        (0..COPIES).try_for_each(|_| copy(BYTES))?;
        stream.synchronize()
    };
    // Warms up.
    pass()?;
    let best = times(PASSES, pass)?.into_iter().min().unwrap_or_default();
    if !is_filled(&theirs, target)? {
        return Err(TrialError::Content);
    }
    let mut small = times(SMALL_COPIES, || {
        copy(4)?;
        stream.synchronize()
    })?;
    small.sort_unstable();
    let median = small.get(small.len() / 2).copied().unwrap_or_default();
    Ok(Speed {
        gb_per_s: (u64::from(COPIES) * BYTES) as f64 / best.as_nanos().max(1) as f64,
        latency_ns: median.as_nanos() as f64,
    })
}

fn stream(context: &Arc<Context>) -> Result<Stream, CudaError> {
    let maker = StreamMaker {
        context: Arc::clone(context),
        green: None,
    };
    maker.stream()
}

/// Times `work` up to `most` times; at least once.
fn times(most: u32, work: impl Fn() -> Result<(), CudaError>) -> Result<Vec<Duration>, CudaError> {
    let begun = Instant::now();
    let mut times = Vec::with_capacity(most as usize);
    while times.is_empty() || (times.len() < most as usize && begun.elapsed() < ENOUGH) {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// Returns whether memory at both ends and between has what was copied, as its own GPU sees it.
fn is_filled(theirs: &Stream, target: u64) -> Result<bool, CudaError> {
    let page = PinnedBuffer::new(theirs.context(), 4096)?;
    let word = u64::from(WORDS[0]) << 32 | u64::from(WORDS[0]);
    for at in [0, BYTES / 2 + 8, BYTES - 8] {
        page.store(0, 0);
        theirs.copy(page.address(), target + at, 8)?;
        theirs.synchronize()?;
        if page.load(0) != word {
            return Ok(false);
        }
    }
    Ok(true)
}
