//! The native side of the comparison: a plain CUDA program in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_bench_workloads::Line;
use causeway_cuda::{GpuIdentity, Native};
use causeway_testdev::Counterpart;

use causeway_run::call_threads::CallThreads;
use causeway_run::gpu::Kind;
use causeway_run::gpus::choose_gpu;
use causeway_terminal::{Code, Failure};

/// Measures CUDA operations in this process, without a VM, for comparison with a guest's. A thread
/// of its own calls the driver: the threads of guests, which ask for it, are confined.
pub struct NativeGpu {
    native: Arc<Native>,
    thread: CallThreads<'static>,
    failed: AtomicBool,
}

causeway_vmm::debug_by_name!(NativeGpu);

impl NativeGpu {
    /// Opens the GPU of back end `kind` for measurements by the host. Returns `None` if the back
    /// end is not CUDA.
    ///
    /// # Errors
    /// A GPU failure if the GPU does not exist or cannot be used.
    pub fn open(kind: Kind) -> Result<Option<(Arc<Self>, GpuIdentity)>, Failure> {
        let Kind::Cuda(causeway_cuda::Options { device, .. }) = kind else {
            return Ok(None);
        };
        let gpus = causeway_cuda::identities().map_err(|e| {
            Failure::new(
                Code::Gpu,
                "cannot list the GPUs of this host, to compare the guest with the host",
                e,
            )
        })?;
        let Some(identity) = gpus.get(device as usize).cloned() else {
            return Err(Failure::gpu(format!(
                "GPU {device} of --gpu does not exist: the driver has {} GPUs, counted from 0",
                gpus.len()
            )));
        };
        let native = Native::open(device).map_err(|e| {
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
            native: Arc::new(native),
            thread,
            failed: AtomicBool::new(false),
        };
        Ok(Some((Arc::new(native), identity)))
    }
}

impl Counterpart for NativeGpu {
    fn measure(&self, line: Line, operations: u32, bytes: u64) -> Option<Duration> {
        let native = Arc::clone(&self.native);
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
        let Kind::Cuda(causeway_cuda::Options { device, .. }) = gpu.kind else {
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
