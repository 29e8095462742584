//! Streams, and the work that is put into them.
//!
//! Addresses are plain numbers, so the caller must know that they are mapped. The driver takes an
//! address that it does not know for memory of this process; that is why [`crate::space`] lets only
//! mapped addresses through.

use std::ffi::c_void;
use std::sync::Arc;

use causeway_mediator::backend::LaunchShape;
use cudarc::driver::sys::CUstream;

use super::{Context, CudaError, Driver, Event, ExecutableGraph, GreenContext, KernelHandle};

/// `CU_STREAM_NON_BLOCKING`: no order with the default stream.
const NON_BLOCKING: u32 = 1;

/// Makes streams in a context, or in a green context of it.
#[derive(Clone)]
pub(crate) struct StreamMaker {
    pub(crate) context: Arc<Context>,
    /// The green context of the multiprocessors that streams use; `None` for all.
    pub(crate) green: Option<Arc<GreenContext>>,
}

/// A CUDA stream: the GPU does the work that is put into it in order.
pub(crate) struct Stream {
    maker: StreamMaker,
    pub(super) raw: CUstream,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: the driver orders concurrent calls on one stream.
unsafe impl Sync for Stream {}

/// The shape and the packed parameters with which a kernel is launched.
pub(crate) struct Launch<'a> {
    pub(crate) shape: LaunchShape,
    pub(crate) parameters: &'a [u8],
}

impl<'a> Launch<'a> {
    /// Returns a launch of a single thread with `parameters`.
    pub(crate) const fn one_thread(parameters: &'a [u8]) -> Self {
        let shape = LaunchShape {
            shared_bytes: 0,
            grid: [1; 3],
            block: [1; 3],
        };
        Self { shape, parameters }
    }
}

/// Calls `call` with the packed block `parameters` in the form that the driver expects; with a null
/// pointer if the block is empty.
pub(super) fn packed<R>(parameters: &[u8], call: impl FnOnce(*mut *mut c_void) -> R) -> R {
    let mut bytes = parameters.len();
    // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END.
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(1),
        parameters.as_ptr().cast_mut().cast(),
        std::ptr::without_provenance_mut(2),
        (&raw mut bytes).cast(),
        std::ptr::null_mut(),
    ];
    if parameters.is_empty() {
        return call(std::ptr::null_mut());
    }
    call(extra.as_mut_ptr())
}

impl StreamMaker {
    /// Creates a stream. Its work has no order to that of other streams.
    pub(crate) fn stream(&self) -> Result<Stream, CudaError> {
        let driver = self.context.enter()?;
        let mut raw = std::ptr::null_mut();
        match &self.green {
            Some(green) => {
                let _making = green.making.lock();
                // SAFETY: stores a stream, which `drop` destroys; the green context is live.
                unsafe { driver.green_ctx_stream_create(&mut raw, green.raw, NON_BLOCKING, 0) }
            }
            // SAFETY: stores a stream, which `drop` destroys, in the context that is current.
            None => unsafe { driver.stream_create(&mut raw, NON_BLOCKING) },
        }?;
        Ok(Stream {
            maker: self.clone(),
            raw,
        })
    }
}

impl Stream {
    /// Returns the context in which the stream works.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.maker.context
    }

    /// Launches the kernel `function`. The parameters are copied before this returns.
    pub(crate) fn launch(
        &self,
        function: KernelHandle,
        launch: &Launch<'_>,
    ) -> Result<(), CudaError> {
        let ([gx, gy, gz], [bx, by, bz]) = (launch.shape.grid, launch.shape.block);
        let driver = self.context().enter()?;
        packed(launch.parameters, |extra| {
            // SAFETY: the function is of a module that the caller keeps loaded; the driver only
            // reads the parameters, as many bytes as is said.
            unsafe {
                driver.launch_kernel(
                    function.0,
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    launch.shape.shared_bytes,
                    self.raw,
                    std::ptr::null_mut(),
                    extra,
                )
            }
        })
    }

    /// Copies `bytes` bytes between addresses that the caller knows to be mapped.
    pub(crate) fn copy(&self, destination: u64, source: u64, bytes: u64) -> Result<(), CudaError> {
        // SAFETY: the caller has looked the addresses up; the driver returns before the copy is
        // done.
        unsafe {
            self.context()
                .enter()?
                .memcpy_async(destination, source, bytes as usize, self.raw)
        }
    }

    /// Fills `bytes` bytes with the low `width` bytes (1, 2 or 4) of `pattern`, at an address that
    /// the caller knows to be mapped.
    pub(crate) fn fill(
        &self,
        destination: u64,
        bytes: u64,
        pattern: u32,
        width: u32,
    ) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        let count = (bytes / u64::from(width)) as usize;
        // SAFETY: as for `copy`.
        unsafe {
            match width {
                1 => driver.memset_d8_async(destination, pattern as u8, count, self.raw),
                2 => driver.memset_d16_async(destination, pattern as u16, count, self.raw),
                _ => driver.memset_d32_async(destination, pattern, count, self.raw),
            }
        }
    }

    /// Makes the GPU store `value` at an address that the caller knows to be mapped, when all
    /// earlier work of the stream is done and its stores are visible.
    pub(crate) fn write_value(&self, address: u64, value: u64) -> Result<(), CudaError> {
        // SAFETY: as for `copy`. Flags 0: with a memory barrier.
        unsafe {
            self.context()
                .enter()?
                .stream_write_value64(self.raw, address, value, 0)
        }
    }

    /// Launches `graph`. The caller keeps the graph until its work is done.
    pub(crate) fn launch_graph(&self, graph: &ExecutableGraph) -> Result<(), CudaError> {
        // SAFETY: the graph is live, and the caller keeps it until the work is done.
        unsafe { self.context().enter()?.graph_launch(graph.raw, self.raw) }
    }

    /// Returns whether the GPU has done all work of the stream.
    pub(crate) fn is_idle(&self) -> Result<bool, CudaError> {
        let driver = self.context().enter()?;
        // SAFETY: the stream is live.
        let result = unsafe { (driver.table()?.stream_query)(self.raw) };
        driver.is_done("cuStreamQuery", result)
    }

    /// Waits until the GPU has done all work of the stream.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is live.
        unsafe { self.context().enter()?.stream_synchronize(self.raw) }
    }

    /// Makes `event` happen when the GPU has done all work that is in the stream now.
    pub(crate) fn record(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both are live, and of one context.
        unsafe { self.context().enter()?.event_record(event.raw, self.raw) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the driver keeps what work under way needs.
        let destroy = |driver: &Driver| unsafe { driver.stream_destroy(self.raw) };
        self.context().release("a stream", destroy);
    }
}
