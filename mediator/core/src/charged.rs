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
    use causeway_protocol::message::Status;

    struct Limited {
        prints: bool,
    }

    impl Kernel for Limited {
        fn parameters(&self) -> &[Parameter] {
            &[Parameter { offset: 0, size: 8 }]
        }

        fn parameter_bytes(&self) -> u32 {
            8
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

        fn prints(&self) -> bool {
            self.prints
        }

        fn check_shape(&self, shape: &LaunchShape) -> Result<(), String> {
            match shape.block[2] {
                1 => Ok(()),
                _ => Err("too deep".to_owned()),
            }
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    fn kernel(prints: bool) -> Arc<dyn Kernel> {
        let inner: Arc<dyn Kernel> = Arc::new(Limited { prints });
        Charged::attach(inner, Arc::new(charges()))
    }

    fn charges<const N: usize>() -> [Charge; N] {
        let account = Account::new(Quota::default());
        [(); N].map(|()| account.charge(Resource::Objects, 1).unwrap())
    }

    /// A recording or memory that takes one page of host memory.
    struct Page;

    impl Recording for Page {
        fn memory_bytes(&self) -> u64 {
            4096
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    impl Memory for Page {
        fn bytes(&self) -> u64 {
            4096
        }

        fn backing(&self) -> Option<Backing> {
            None
        }

        fn place(&self) -> Place {
            Place::Host
        }

        fn export(&self) -> Result<Exported, BackendError> {
            Err(BackendError::new(Status::Unsupported, "not shared"))
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn objects_say_what_they_said_before_they_were_charged_for() {
        let parameters = [Parameter { offset: 0, size: 8 }];
        for prints in [false, true] {
            let kernel = kernel(prints);
            assert_eq!(kernel.parameters(), parameters);
            assert_eq!(kernel.prints(), prints);
        }
        let recording: Arc<dyn Recording> = Arc::new(Page);
        let recording: Arc<dyn Recording> = Charged::attach(recording, charges::<3>());
        assert_eq!(recording.memory_bytes(), 4096);
        // Copies take another way to memory that is elsewhere.
        let memory: Arc<dyn Memory> = Arc::new(Page);
        let memory: Arc<dyn Memory> = Charged::attach(memory, charges::<1>());
        assert_eq!(memory.place(), Place::Host);
    }

    #[test]
    fn launches_are_refused_by_the_limits_of_the_kernel_itself() {
        let kernel = kernel(false);
        let refused = |block, shared_bytes| {
            let shape = LaunchShape {
                grid: [1; 3],
                block,
                shared_bytes,
            };
            Launch::new(&kernel, shape, &[0; 8]).err().map(|e| e.text)
        };
        let refusal = |threads, shared_bytes| refused([threads, 1, 1], shared_bytes);
        assert_eq!(refusal(512, 4096), None);
        let threads = "invalid block of 513 threads: at most 512";
        assert_eq!(refusal(513, 0).unwrap(), threads);
        let shared = "5121 bytes of shared memory in a block: at most 5120";
        assert_eq!(refusal(1, 4097).unwrap(), shared);
        assert_eq!(refused([1, 1, 2], 0).unwrap(), "too deep");
        let shape = LaunchShape {
            // The largest that there is.
            grid: [i32::MAX as u32, 65535, 65535],
            block: [512, 1, 1],
            shared_bytes: 0,
        };
        let launch = Launch::new(&kernel, shape, &[0; 8]).unwrap();
        assert_eq!(launch.shape(), shape);
        for (cluster, fits) in [([0; 3], true), ([1; 3], true), ([0, 1, 1], false)] {
            let options = LaunchOptions { flags: 1, cluster };
            let launch = Launch::new(&kernel, shape, &[0; 8]).unwrap();
            assert_eq!(launch.with_options(options).is_ok(), fits, "{cluster:?}");
        }
        // The grid is no whole number of these, whatever the kernel could launch.
        let options = LaunchOptions {
            flags: 0,
            cluster: [2, 1, 1],
        };
        let launch = Launch::new(&kernel, shape, &[0; 8]).unwrap();
        let text = launch.with_options(options).unwrap_err().text;
        assert!(text.starts_with("invalid clusters"), "{text}");
    }
}
