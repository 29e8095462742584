//! Objects of a back end with what they cost the session's quota.
//!
//! Work under way holds the whole object, so a session is charged until the last user has let go of
//! it: freeing memory under a running kernel does not make room for more.

use std::any::Any;
use std::sync::Arc;

use causeway_memory::Backing;
use causeway_protocol::message::{KERNEL_ATTRIBUTES, Parameter};

use crate::backend::{
    BackendError, Exported, Fault, Kernel, LaunchOptions, LaunchShape, Memory, Recording,
};
use crate::quota::Charge;

/// What a module costs: its image, its handle, its memory, and the allocations for its variables.
pub(crate) type ModuleCharges = [Charge; 4];
/// What a recording costs: its packets, its handle, the memory that the back end needs for it.
pub(crate) type RecordingCharges = [Charge; 3];

/// An object of the back end, and the charges that end with it.
pub(crate) struct Charged<T: ?Sized, C> {
    inner: Arc<T>,
    _charges: C,
}

impl<T: ?Sized, C> Charged<T, C> {
    pub fn attach(inner: Arc<T>, charges: C) -> Arc<Self> {
        Arc::new(Self {
            inner,
            _charges: charges,
        })
    }
}

impl Kernel for Charged<dyn Kernel, Arc<ModuleCharges>> {
    fn parameters(&self) -> &[Parameter] {
        self.inner.parameters()
    }

    fn parameter_bytes(&self) -> u32 {
        self.inner.parameter_bytes()
    }

    fn block_threads_max(&self) -> u32 {
        self.inner.block_threads_max()
    }

    fn shared_bytes(&self) -> u32 {
        self.inner.shared_bytes()
    }

    fn dynamic_shared_bytes_max(&self) -> u32 {
        self.inner.dynamic_shared_bytes_max()
    }

    fn cuda_attributes(&self) -> [Option<i32>; KERNEL_ATTRIBUTES] {
        self.inner.cuda_attributes()
    }

    fn prints(&self) -> bool {
        self.inner.prints()
    }

    fn check_shape(&self, shape: &LaunchShape) -> Result<(), String> {
        self.inner.check_shape(shape)
    }

    fn check_options(&self, shape: &LaunchShape, options: &LaunchOptions) -> Result<(), Fault> {
        self.inner.check_options(shape, options)
    }

    fn launch_bytes(&self, shape: &LaunchShape, options: &LaunchOptions) -> u64 {
        self.inner.launch_bytes(shape, options)
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

impl Recording for Charged<dyn Recording, RecordingCharges> {
    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

impl Memory for Charged<dyn Memory, Charge> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn backing(&self) -> Option<Backing> {
        self.inner.backing()
    }

    fn export(&self) -> Result<Exported, BackendError> {
        self.inner.export()
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
