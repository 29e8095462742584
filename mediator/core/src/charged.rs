//! Objects of a back end with what they cost the session's quota.
//!
//! Work under way holds the whole object, so a session is charged until the last user has let go of
//! it: freeing memory under a running kernel does not make room for more.

use std::any::Any;
use std::sync::Arc;

use causeway_memory::Backing;
use causeway_protocol::message::{KERNEL_ATTRIBUTES, Parameter};

use crate::backend::{
    BackendError, Exported, FabricBytes, Fault, Kernel, LaunchOptions, LaunchShape, Memory, Place,
    Recording,
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

impl<C: Send + Sync + 'static> Memory for Charged<dyn Memory, C> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn backing(&self) -> Option<Backing> {
        self.inner.backing()
    }

    fn place(&self) -> Place {
        self.inner.place()
    }

    fn export(&self) -> Result<Exported, BackendError> {
        self.inner.export()
    }

    fn fabric_handle(&self) -> Result<FabricBytes, BackendError> {
        self.inner.fabric_handle()
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Launch;
    use crate::quota::{Account, Quota, Resource};

    struct Limited;

    impl Kernel for Limited {
        fn parameters(&self) -> &[Parameter] {
            &[]
        }

        fn parameter_bytes(&self) -> u32 {
            0
        }

        fn block_threads_max(&self) -> u32 {
            512
        }

        fn shared_bytes(&self) -> u32 {
            1024
        }

        fn dynamic_shared_bytes_max(&self) -> u32 {
            4096
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn launches_are_refused_by_the_limits_of_the_kernel_itself() {
        let account = Account::new(Quota::default());
        let charges = [(); 4].map(|()| account.charge(Resource::Objects, 1).unwrap());
        let inner: Arc<dyn Kernel> = Arc::new(Limited);
        let kernel: Arc<dyn Kernel> = Charged::attach(inner, Arc::new(charges));
        let refusal = |threads, shared_bytes| {
            let shape = LaunchShape {
                grid: [1; 3],
                block: [threads, 1, 1],
                shared_bytes,
            };
            Launch::new(&kernel, shape, &[]).err().map(|e| e.text)
        };
        assert_eq!(refusal(512, 4096), None);
        let threads = "invalid block of 513 threads: at most 512";
        assert_eq!(refusal(513, 0).unwrap(), threads);
        let shared = "5121 bytes of shared memory in a block: at most 5120";
        assert_eq!(refusal(1, 4097).unwrap(), shared);
    }
}
