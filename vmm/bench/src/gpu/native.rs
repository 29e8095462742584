//! The native side of the comparison: a plain CUDA program in this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_bench_workloads::Line;
use causeway_cuda::{GpuIdentity, Native};
use causeway_testdev::Counterpart;

use causeway_run::configuration::choose_gpu;
use causeway_run::gpu::Kind;
use causeway_terminal::{Code, Failure};

/// A native CUDA program that guests on a GPU are compared with.
pub struct NativeGpu {
    native: Native,
    failed: AtomicBool,
}

impl fmt::Debug for NativeGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeGpu").finish_non_exhaustive()
    }
}

impl NativeGpu {
    /// Opens the GPU of the back end for native measurements. Returns `None` if the back end is not
    /// CUDA.
    pub fn open(kind: Kind) -> Result<Option<(Arc<Self>, GpuIdentity)>, Failure> {
        let Kind::Cuda(causeway_cuda::Options { device, .. }) = kind else {
            return Ok(None);
        };
        let gpus = causeway_cuda::identities()
            .map_err(|e| Failure::new(Code::Gpu, "no GPU to compare with", e))?;
        let Some(identity) = gpus.get(device as usize).cloned() else {
            return Err(Failure::gpu(format!(
                "GPU {device} does not exist: the driver has {}, counted from 0",
                gpus.len()
            )));
        };
        let native = Native::open(device)
            .map_err(|e| Failure::new(Code::Gpu, "cannot measure the native side", e))?;
        let native = Self {
            native,
            failed: AtomicBool::new(false),
        };
        Ok(Some((Arc::new(native), identity)))
    }
}

impl Counterpart for NativeGpu {
    fn measure(&self, line: Line, operations: u32, bytes: u64) -> Option<Duration> {
        match self.native.measure(line, operations, bytes) {
            Ok(time) => time,
            Err(error) => {
                if !self.failed.swap(true, Ordering::Relaxed) {
                    log::warn!("the native side of `{}` failed: {error}", line.name());
                }
                None
            }
        }
    }
}

/// Queries the free memory of a GPU, without using any.
pub struct GpuMemory {
    native: Native,
}

impl GpuMemory {
    /// Opens the GPU that `--gpu` names. Returns `None` if the back end is not CUDA.
    pub fn of(gpu: &str) -> Result<Option<Self>, Failure> {
        let (gpu, _) = choose_gpu(gpu)?;
        let Kind::Cuda(causeway_cuda::Options { device, .. }) = gpu.kind else {
            return Ok(None);
        };
        let native = Native::open(device)
            .map_err(|e| Failure::new(Code::Gpu, "cannot read the GPU's free memory", e))?;
        Ok(Some(Self { native }))
    }

    /// Returns the free memory in bytes. The memory of all processes counts as used.
    pub fn free_bytes(&self) -> Option<u64> {
        let free = self.native.free_bytes();
        free.inspect_err(|e| log::warn!("cannot read the GPU's free memory: {e}"))
            .ok()
    }
}
