//! Contexts, and which of them is current for a thread.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudarc::driver::sys::CUcontext;
use log::Level;

use super::{CudaError, Device, Driver};

/// `CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST`: waits inside the driver are rare and short here.
const FLAGS: u32 = 1 | 8;
/// `CU_LIMIT_PRINTF_FIFO_SIZE`
const TEXT_LIMIT: u32 = 1;
/// `CU_LIMIT_PRINTF_FIFO_SIZE` and `CU_LIMIT_MALLOC_HEAP_SIZE`, which take 8 MiB of the GPU each by
/// default.
const LIMITS: [(u32, usize); 2] = [(TEXT_LIMIT, 64 << 10), (2, 64 << 10)];
/// Room for text once a module prints, 512 bytes for each message: what driver 580 has by default.
const TEXT_BYTES: usize = 16_896 * 512;

thread_local! {
    /// Number of the context that this thread made current last. Only this module makes contexts
    /// current.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// A CUDA context of this process, until dropped.
pub(crate) struct Context {
    device: Device,
    raw: CUcontext,
    /// Identifies the context. Numbers are never used again, unlike the driver's pointers.
    number: u64,
    primary: bool,
    /// Whether work is under way that never ends, so that destruction would wait for ever.
    abandoned: AtomicBool,
}

// SAFETY: contexts may be used from any thread; each makes it current for itself.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Returns the primary context of `device`, which all users in this process share.
    pub(crate) fn primary(device: Device) -> Result<Arc<Self>, CudaError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: stores a context, which `drop` releases.
        unsafe { device.driver.primary_ctx_retain(&mut raw, device.raw) }?;
        Ok(Self::adopt(device, raw, true))
    }

    /// Creates a new context on `device`.
    pub(crate) fn create(device: Device) -> Result<Arc<Self>, CudaError> {
        let mut raw = std::ptr::null_mut();
        // The call makes the new context current for this thread: what was current before is no
        // longer.
        CURRENT.set(0);
        // SAFETY: stores a context, which `drop` destroys.
        unsafe { device.driver.ctx_create(&mut raw, FLAGS, device.raw) }?;
        Ok(Self::adopt(device, raw, false))
    }

    fn adopt(device: Device, raw: CUcontext, primary: bool) -> Arc<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let context = Self {
            device,
            raw,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            primary,
            abandoned: AtomicBool::new(false),
        };
        context.limit_memory();
        Arc::new(context)
    }

    /// Limits the context's memory for `printf` and `malloc` of kernels, because no quota counts
    /// it.
    fn limit_memory(&self) {
        if self.enter().is_err() {
            return;
        }
        for (limit, bytes) in LIMITS {
            self.set_limit(limit, bytes);
        }
    }

    /// Gives kernels as much room for text as programs expect. Called before the first of them
    /// prints.
    pub(crate) fn make_room_for_text(&self) {
        if self.enter().is_ok() {
            self.set_limit(TEXT_LIMIT, TEXT_BYTES);
        }
    }

    /// Sets a limit of this context, which is current.
    fn set_limit(&self, limit: u32, bytes: usize) {
        // SAFETY: only numbers.
        if let Err(e) = unsafe { self.driver().ctx_set_limit(limit, bytes) } {
            log::debug!("cannot set limit {limit} of a CUDA context to {bytes} bytes: {e}");
        }
    }

    /// Returns the most urgent priority of a stream: a negative number, or 0 if all streams have
    /// the same.
    pub(crate) fn greatest_priority(&self) -> Result<i32, CudaError> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: stores two numbers.
        unsafe {
            self.enter()?
                .ctx_get_stream_priority_range(&mut least, &mut greatest)
        }?;
        Ok(greatest.min(0))
    }

    /// Makes this context current for the thread, and returns the driver. Each wrapper calls this
    /// before a driver call that needs a context.
    pub(crate) fn enter(&self) -> Result<&'static Driver, CudaError> {
        let driver = self.driver();
        if CURRENT.get() == self.number {
            return Ok(driver);
        }
        // SAFETY: the context is live: `self` owns it.
        unsafe { driver.ctx_set_current(self.raw) }?;
        CURRENT.set(self.number);
        Ok(driver)
    }

    /// Returns the driver's handle of this context.
    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Returns the driver of this process.
    pub(crate) fn driver(&self) -> &'static Driver {
        self.device.driver
    }

    /// Returns the GPU of this context.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Notes that work is under way that does not end. The objects of the context then exist until
    /// the process ends, because their destruction would wait for that work.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }

    /// Returns whether the context is unusable: it was abandoned, or an error has poisoned the
    /// process.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst) || self.driver().poison().is_some()
    }

    /// Calls `release`, which destroys an object of the context. `what` names the object for the
    /// log, and an error is logged at `level`. In a poisoned context it does nothing: the object
    /// then exists until the process ends.
    pub(super) fn release(
        &self,
        level: Level,
        what: impl Display,
        release: impl FnOnce(&Driver) -> Result<(), CudaError>,
    ) {
        if self.is_poisoned() || self.enter().is_err() {
            return;
        }
        if let Err(e) = release(self.driver()) {
            log::log!(level, "the CUDA driver did not release {what}: {e}");
        }
    }

    /// Returns the GPU memory that no process uses, in bytes.
    pub(crate) fn free_bytes(&self) -> Result<u64, CudaError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: stores two sizes.
        unsafe { self.driver().mem_get_info(&mut free, &mut total) }?;
        Ok(free as u64)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_poisoned() {
            return;
        }
        // This thread has no current context afterwards.
        CURRENT.set(0);
        // SAFETY: streams, events and modules hold the context, so none is left that could be used
        // afterwards.
        let ended = unsafe {
            if self.primary {
                self.driver().primary_ctx_release(self.device.raw)
            } else {
                self.driver().ctx_destroy(self.raw)
            }
        };
        if let Err(e) = ended {
            log::debug!("the CUDA driver did not release a context: {e}");
        }
    }
}
