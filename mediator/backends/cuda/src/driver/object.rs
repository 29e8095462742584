//! Objects that the driver creates in a context: destroyed when they are dropped.

use std::sync::Arc;

use cudarc::driver::sys::{
    CUarray_st, CUevent_st, CUgraph_st, CUgraphExec_st, CUgreenCtx_st, CUmod_st, CUstream_st,
};
use log::Level;

use super::{Context, CudaError, Driver};

/// A kind of object, to which the driver's handles point.
pub(super) trait Object {
    /// The kind in words, for the log.
    const NAME: &'static str;

    /// Destroys the object `raw`.
    ///
    /// # Safety
    /// The object must be live; nobody may use it afterwards.
    unsafe fn destroy(driver: &Driver, raw: *mut Self) -> Result<(), CudaError>;
}

macro_rules! objects {
    ($($kind:ty: $name:literal, $destroy:ident;)*) => {
        $(impl Object for $kind {
            const NAME: &'static str = $name;

            unsafe fn destroy(driver: &Driver, raw: *mut Self) -> Result<(), CudaError> {
                // SAFETY: by this function's contract.
                unsafe { driver.$destroy(raw) }
            }
        })*
    };
}

// Work under way keeps what it needs of these objects: the driver destroys an event that has not
// happened yet when it has (cuEventDestroy), and the same holds for streams and graphs. Arrays,
// modules and green contexts are dropped after the work and the streams that use them.
objects! {
    CUarray_st: "an array", array_destroy;
    CUevent_st: "an event", event_destroy;
    CUstream_st: "a stream", stream_destroy;
    CUmod_st: "a module", module_unload;
    CUgraph_st: "a graph", graph_destroy;
    CUgraphExec_st: "an executable graph", graph_exec_destroy;
    CUgreenCtx_st: "a green context", green_ctx_destroy;
}

/// An object of a context, until dropped.
pub(super) struct Owned<T: Object> {
    pub(super) context: Arc<Context>,
    pub(super) raw: *mut T,
}

// SAFETY: any thread may use and destroy objects of the driver.
unsafe impl<T: Object> Send for Owned<T> {}

impl<T: Object> Owned<T> {
    /// Creates an object in `context` by calling `create`, which stores the driver's handle of it.
    ///
    /// # Safety
    /// If `create` returns no error, it must have stored the handle of a live object that nothing
    /// else destroys.
    pub(super) unsafe fn create(
        context: &Arc<Context>,
        create: impl FnOnce(&Driver, &mut *mut T) -> Result<(), CudaError>,
    ) -> Result<Self, CudaError> {
        let mut raw = std::ptr::null_mut();
        create(context.enter()?, &mut raw)?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }
}

impl<T: Object> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: live by the contract of `create`, and not used again.
        let destroy = |driver: &Driver| unsafe { T::destroy(driver, self.raw) };
        self.context.release(Level::Debug, T::NAME, destroy);
    }
}
