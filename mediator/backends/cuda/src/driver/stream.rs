//! Streams, and the work that is put into them.
//!
//! Addresses are plain numbers, so the caller must know that they are mapped. The driver takes an
//! address that it does not know for memory of this process; that is why [`crate::space`] lets only
//! mapped addresses through.

use std::ffi::c_void;
use std::sync::Arc;

use causeway_mediator::backend::{
    CopyShape, FillShape, LaunchOptions, LaunchShape, is_cooperative,
};
use causeway_protocol::message::Parameter;
use cudarc::driver::sys::{
    CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUlaunchConfig, CUmemorytype, CUstream_st,
};

use super::{Context, CudaError, Event, ExecutableGraph, GreenContext, KernelHandle, Owned};

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
    pub(super) object: Owned<CUstream_st>,
    /// Dropped after the stream, which works in it.
    _green: Option<Arc<GreenContext>>,
}

// SAFETY: the driver orders concurrent calls on one stream.
unsafe impl Sync for Stream {}

/// The shape and the packed parameters with which a kernel is launched.
pub(crate) struct Launch<'a> {
    pub(crate) shape: LaunchShape,
    pub(crate) options: LaunchOptions,
    pub(crate) parameters: &'a [u8],
    /// Where each parameter is in that block; not looked at for plain launches.
    pub(crate) layout: &'a [Parameter],
}

impl<'a> Launch<'a> {
    /// Returns a launch of a single thread with `parameters`.
    pub(crate) const fn one_thread(parameters: &'a [u8]) -> Self {
        let shape = LaunchShape {
            shared_bytes: 0,
            grid: [1; 3],
            block: [1; 3],
        };
        Self {
            shape,
            options: LaunchOptions::PLAIN,
            parameters,
            layout: &[],
        }
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

/// Returns `options` as attributes of a launch.
fn attributes(options: &LaunchOptions) -> Vec<CUlaunchAttribute> {
    let attribute = |id, words: [u32; 3]| {
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        value.clusterDim.x = words[0];
        value.clusterDim.y = words[1];
        value.clusterDim.z = words[2];
        CUlaunchAttribute {
            id,
            pad: [0; 4],
            value,
        }
    };
    let mut attributes = Vec::with_capacity(2);
    if is_cooperative(options) {
        let cooperative = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes.push(attribute(cooperative, [1, 0, 0]));
    }
    if options.cluster != [0; 3] {
        let cluster = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes.push(attribute(cluster, options.cluster));
    }
    attributes
}

/// Returns where each parameter of a launch is: cooperative launches take no packed block.
fn pointers(launch: &Launch<'_>) -> Vec<*mut c_void> {
    let pointer = |parameter: &Parameter| {
        let offset = usize::from(parameter.offset);
        let end = offset + usize::from(parameter.size);
        let bytes = launch.parameters.get(offset..end).unwrap_or_default();
        bytes.as_ptr().cast_mut().cast()
    };
    launch.layout.iter().map(pointer).collect()
}

impl StreamMaker {
    /// Creates a stream of the least urgent priority. Its work has no order to that of other
    /// streams.
    pub(crate) fn stream(&self) -> Result<Stream, CudaError> {
        self.stream_of(0)
    }

    /// Creates a stream whose pending blocks begin before those of streams with a larger number.
    pub(crate) fn stream_of(&self, priority: i32) -> Result<Stream, CudaError> {
        // SAFETY: stores a new stream, in the context that is current or a green one that is live.
        let created = unsafe {
            Owned::create(&self.context, |driver, raw| match &self.green {
                Some(green) => {
                    let _making = green.making.lock();
                    driver.green_ctx_stream_create(raw, green.object.raw, NON_BLOCKING, priority)
                }
                None => driver.stream_create(raw, NON_BLOCKING, priority),
            })
        };
        Ok(Stream {
            object: created?,
            _green: self.green.clone(),
        })
    }
}

impl Stream {
    /// Returns the context in which the stream works.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.object.context
    }

    /// Launches the kernel `function`. The parameters are copied before this returns.
    pub(crate) fn launch(
        &self,
        function: KernelHandle,
        launch: &Launch<'_>,
    ) -> Result<(), CudaError> {
        if launch.options != LaunchOptions::PLAIN {
            return self.launch_with_options(function, launch);
        }
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
                    self.object.raw,
                    std::ptr::null_mut(),
                    extra,
                )
            }
        })
    }

    fn launch_with_options(
        &self,
        function: KernelHandle,
        launch: &Launch<'_>,
    ) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        let mut attributes = attributes(&launch.options);
        let LaunchShape {
            shared_bytes,
            grid,
            block,
        } = launch.shape;
        let configuration = CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared_bytes,
            hStream: self.object.raw,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        let mut pointers = pointers(launch);
        let parameters = match pointers.is_empty() {
            true => std::ptr::null_mut(),
            false => pointers.as_mut_ptr(),
        };
        let (none, configuration) = (std::ptr::null_mut(), &raw const configuration);
        // SAFETY: as for `launch`; each pointer is that of a parameter, which lies in the block.
        // The driver has read them and the configuration when it returns.
        unsafe { driver.launch_kernel_ex(configuration, function.0, parameters, none) }
    }

    /// Copies `bytes` bytes between addresses that the caller knows to be mapped.
    pub(crate) fn copy(&self, destination: u64, source: u64, bytes: u64) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        // SAFETY: the caller has looked the addresses up; the driver returns before the copy is
        // done.
        unsafe { driver.memcpy_async(destination, source, bytes as usize, self.object.raw) }
    }

    /// Copies `bytes` bytes between addresses that the caller knows to be mapped: `destination` and
    /// `source` for the GPUs of the contexts beside them. The driver takes the way through the host
    /// where neither GPU reaches the other's memory.
    pub(crate) fn copy_across(
        &self,
        (destination, to): (u64, &Context),
        (source, from): (u64, &Context),
        bytes: u64,
    ) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        let (to, from, bytes) = (to.raw(), from.raw(), bytes as usize);
        // SAFETY: as for `copy`; the contexts are live, and stay so while memory is mapped in them.
        unsafe { driver.memcpy_peer_async(destination, to, source, from, bytes, self.object.raw) }
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
        let (driver, stream) = (self.context().enter()?, self.object.raw);
        let count = (bytes / u64::from(width)) as usize;
        // SAFETY: as for `copy`.
        unsafe {
            match width {
                1 => driver.memset_d8_async(destination, pattern as u8, count, stream),
                2 => driver.memset_d16_async(destination, pattern as u16, count, stream),
                _ => driver.memset_d32_async(destination, pattern, count, stream),
            }
        }
    }

    /// Copies rows between addresses that the caller knows to be mapped.
    pub(crate) fn copy_rect(&self, shape: &CopyShape) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        let (to, from) = (shape.destination, shape.source);
        let unified = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        let copy = CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: unified,
            srcHost: std::ptr::null(),
            srcDevice: from.address,
            srcArray: std::ptr::null_mut(),
            reserved0: std::ptr::null_mut(),
            srcPitch: from.pitch as usize,
            srcHeight: from.rows as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: unified,
            dstHost: std::ptr::null_mut(),
            dstDevice: to.address,
            dstArray: std::ptr::null_mut(),
            reserved1: std::ptr::null_mut(),
            dstPitch: to.pitch as usize,
            dstHeight: to.rows as usize,
            WidthInBytes: shape.width as usize,
            Height: shape.height as usize,
            Depth: shape.depth as usize,
        };
        // SAFETY: as for `copy`; the driver has read the structure when it returns.
        unsafe { driver.memcpy3d_async(&raw const copy, self.object.raw) }
    }

    /// Copies rows as [`Self::copy_across`] does, between the GPUs of the contexts `to` and `from`.
    pub(crate) fn copy_rect_across(
        &self,
        shape: &CopyShape,
        to: &Context,
        from: &Context,
    ) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        let (destination, source) = (shape.destination, shape.source);
        let device = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let copy = CUDA_MEMCPY3D_PEER {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: device,
            srcHost: std::ptr::null(),
            srcDevice: source.address,
            srcArray: std::ptr::null_mut(),
            srcContext: from.raw(),
            srcPitch: source.pitch as usize,
            srcHeight: source.rows as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: device,
            dstHost: std::ptr::null_mut(),
            dstDevice: destination.address,
            dstArray: std::ptr::null_mut(),
            dstContext: to.raw(),
            dstPitch: destination.pitch as usize,
            dstHeight: destination.rows as usize,
            WidthInBytes: shape.width as usize,
            Height: shape.height as usize,
            Depth: shape.depth as usize,
        };
        // SAFETY: as for `copy_across`; the driver has read the structure when it returns.
        unsafe { driver.memcpy3d_peer_async(&raw const copy, self.object.raw) }
    }

    /// Fills rows at addresses that the caller knows to be mapped.
    pub(crate) fn fill_rect(&self, shape: &FillShape) -> Result<(), CudaError> {
        let (driver, stream) = (self.context().enter()?, self.object.raw);
        let (to, pattern, pitch) = (shape.destination, shape.pattern, shape.pitch as usize);
        let width = (shape.width / u64::from(shape.element)) as usize;
        let height = shape.height as usize;
        // SAFETY: as for `copy`.
        unsafe {
            match shape.element {
                1 => driver.memset_d2d8_async(to, pitch, pattern as u8, width, height, stream),
                2 => driver.memset_d2d16_async(to, pitch, pattern as u16, width, height, stream),
                _ => driver.memset_d2d32_async(to, pitch, pattern, width, height, stream),
            }
        }
    }

    /// Makes the GPU store `value` at an address that the caller knows to be mapped, when all
    /// earlier work of the stream is done and its stores are visible.
    pub(crate) fn write_value(&self, address: u64, value: u64) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        // SAFETY: as for `copy`. Flags 0: with a memory barrier.
        unsafe { driver.stream_write_value64(self.object.raw, address, value, 0) }
    }

    /// Does the same with a 32-bit word.
    pub(crate) fn write_value32(&self, address: u64, value: u32) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        // SAFETY: as for `write_value`.
        unsafe { driver.stream_write_value32(self.object.raw, address, value, 0) }
    }

    /// Launches `graph`. The caller keeps the graph until its work is done.
    pub(crate) fn launch_graph(&self, graph: &ExecutableGraph) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        // SAFETY: the graph is live, and the caller keeps it until the work is done.
        unsafe { driver.graph_launch(graph.0.raw, self.object.raw) }
    }

    /// Returns whether the GPU has done all work of the stream.
    pub(crate) fn is_idle(&self) -> Result<bool, CudaError> {
        let driver = self.context().enter()?;
        // SAFETY: the stream is live.
        let result = unsafe { (driver.table()?.stream_query)(self.object.raw) };
        driver.is_done("cuStreamQuery", result)
    }

    /// Waits until the GPU has done all work of the stream.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is live.
        unsafe { self.context().enter()?.stream_synchronize(self.object.raw) }
    }

    /// Makes the driver write what kernels of the context have printed to standard output. Waits
    /// only for the work of this stream.
    pub(crate) fn print(&self) -> Result<(), CudaError> {
        self.synchronize()?;
        // SAFETY: flushes all streams of the C library, one of which the driver writes to.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        Ok(())
    }

    /// Makes `event` happen when the GPU has done all work that is in the stream now.
    pub(crate) fn record(&self, event: &Event) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        // SAFETY: both are live, and of one context.
        unsafe { driver.event_record(event.0.raw, self.object.raw) }
    }
}
