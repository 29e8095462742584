//! The native side of the comparison: a plain CUDA program in this process, on one GPU or on two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_bench_workloads::Line;
use causeway_cuda::{GpuIdentity, Native, NativeError, NativePeers};
use causeway_testdev::Counterpart;

use super::peers::Lines;
use causeway_run::call_threads::CallThreads;
use causeway_run::configuration::Run;
use causeway_run::gpu::Kind;
use causeway_run::gpus::choose_gpu;
use causeway_terminal::{Code, Failure};

/// Measures CUDA operations in this process, without a VM, for comparison with a guest's. A thread
/// of its own calls the driver: the threads of guests, which ask for it, are confined.
pub struct NativeGpu {
    native: Measured,
    thread: CallThreads<'static>,
    failed: AtomicBool,
}

causeway_vmm::debug_by_name!(NativeGpu);

/// What is measured.
#[derive(Clone)]
enum Measured {
    One(Arc<Native>),
    Two(Arc<NativePeers>),
}

impl Measured {
    fn open(devices: &[u32], lines: Lines) -> Result<Self, NativeError> {
        let native = match (devices, lines) {
            (&[one, other], Lines::OfTwo { mib }) => {
                Self::Two(Arc::new(NativePeers::open([one, other], mib << 20)?))
            }
            _ => {
                let device = devices.first().copied().unwrap_or(0);
                Self::One(Arc::new(Native::open(device)?))
            }
        };
        Ok(native)
    }

    fn measure(&self, line: Line, n: u32, bytes: u64) -> Result<Option<Duration>, NativeError> {
        match self {
            Self::One(native) => Ok(native.measure(line, n, bytes)?),
            Self::Two(native) => native.measure(line, n, bytes),
        }
    }
}

impl NativeGpu {
    /// Opens the GPUs of `run` for measurements of `lines` by the host. Returns `None` if the back
    /// end is not CUDA. The identity is that of the first GPU.
    ///
    /// # Errors
    /// A GPU failure if a GPU does not exist or cannot be used, or two GPUs cannot be peers.
    pub fn open(run: &Run, lines: Lines) -> Result<Option<(Arc<Self>, GpuIdentity)>, Failure> {
        let devices: Vec<u32> = run
            .gpus()
            .filter_map(|(gpu, _)| device_of(gpu.kind))
            .collect();
        let Some(first) = devices.first() else {
            return Ok(None);
        };
        let gpus = causeway_cuda::identities().map_err(|e| {
            Failure::new(
                Code::Gpu,
                "cannot list the GPUs of this host, to compare the guest with the host",
                e,
            )
        })?;
        if let Some(missing) = devices
            .iter()
            .find(|device| **device as usize >= gpus.len())
        {
            return Err(Failure::gpu(format!(
                "GPU {missing} of --gpu does not exist: the driver has {} GPUs, counted from 0",
                gpus.len()
            )));
        }
        lines.check_peers(&devices)?;
        let identity = gpus[*first as usize].clone();
        let native = Measured::open(&devices, lines).map_err(|e| {
            Failure::new(
                Code::Gpu,
                "cannot use the GPU from the host, to compare the guest with the host",
                e,
            )
        })?;
        let (thread, ()) = CallThreads::start("native", 1, || {}).map_err(|e| {
            let what = "cannot start the thread that measures on the host";
            Failure::new(Code::Crashed, what, e)
        })?;
        let native = Self {
            native,
            thread,
            failed: AtomicBool::new(false),
        };
        Ok(Some((Arc::new(native), identity)))
    }
}

/// Returns the driver's number of a GPU; `None` if its back end is not CUDA.
fn device_of(kind: Kind) -> Option<u32> {
    match kind {
        Kind::Cuda(causeway_cuda::Options { device, .. }) => Some(device),
        Kind::Software(_) | Kind::Vfio(_) => None,
    }
}

impl Counterpart for NativeGpu {
    fn measure(&self, line: Line, operations: u32, bytes: u64) -> Option<Duration> {
        let native = self.native.clone();
        let measure = move || native.measure(line, operations, bytes);
        match self.thread.call(measure) {
            Ok(time) => time,
            Err(error) => {
                if !self.failed.swap(true, Ordering::Relaxed) {
                    log::warn!(
                        "cannot measure `{name}` on the host, so the report has no native time for \
                         it (later failures of this kind are not logged): {error}",
                        name = line.name()
                    );
                }
                None
            }
        }
    }
}

/// Reads how much memory of a GPU is free, without using any of it.
pub struct GpuMemory {
    native: Native,
}

impl GpuMemory {
    /// Opens the GPU that `gpu`, a value of `--gpu`, names. Returns `None` if the back end is not
    /// CUDA.
    ///
    /// # Errors
    /// A usage failure if `gpu` is invalid; a GPU failure if the GPU cannot be opened.
    pub fn of(gpu: &str) -> Result<Option<Self>, Failure> {
        let (gpu, _) = choose_gpu(gpu)?;
        let Some(device) = device_of(gpu.kind) else {
            return Ok(None);
        };
        let native = Native::open(device).map_err(|e| {
            Failure::new(
                Code::Gpu,
                "cannot read how much memory of the GPU is free",
                e,
            )
        })?;
        Ok(Some(Self { native }))
    }

    /// Returns how many bytes of the GPU's memory no process uses, or `None` if the driver reports
    /// an error, which is logged.
    pub fn free_bytes(&self) -> Option<u64> {
        let free = self.native.free_bytes();
        free.inspect_err(|e| log::warn!("cannot read how much memory of the GPU is free: {e}"))
            .ok()
    }
}
