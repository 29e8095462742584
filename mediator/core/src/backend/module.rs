//! Modules of a back end, and their kernels.

use std::any::Any;
use std::sync::Arc;

use causeway_protocol::message::{KERNEL_ATTRIBUTES, Parameter};

use super::{Fault, LaunchOptions, LaunchShape, refuse_clusters};

/// Where a variable of a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// GPU virtual address of the variable.
    pub address: u64,
    /// Size of the variable in bytes.
    pub bytes: u64,
}

/// GPU code that was loaded into an address space, with its kernels.
pub trait Module: Send + Sync {
    /// Returns the kernel `name`; `None` if the module has no kernel of that name.
    fn kernel(&self, name: &str) -> Option<Arc<dyn Kernel>>;
    /// Returns the names of all kernels in the module, in any order.
    fn kernels(&self) -> Vec<String>;
    /// Returns where the variable `name` is; `None` if the module has no variable of that name.
    /// From then on until the module is dropped, copies and fills can use its bytes, also those of
    /// a variable that is constant for kernels. The default implementation suits back ends whose
    /// modules have no variables.
    fn variable(&self, name: &str) -> Option<Variable> {
        let _ = name;
        None
    }
    /// Returns how many bytes of memory the module takes in addition to its image, for its
    /// variables and its compiled code. The session is charged for them until the module is
    /// unloaded and no launch of its kernels runs any more.
    fn memory_bytes(&self) -> u64;
}

/// A kernel of a module. A queue keeps the `Arc` of a kernel until the launch is done: the session
/// is charged for the kernel's module until the last of these `Arc`s is dropped.
pub trait Kernel: Send + Sync + Any {
    /// Returns the offset and the size of each parameter in the parameter block.
    fn parameters(&self) -> &[Parameter];
    /// Returns the size of the parameter block in bytes.
    fn parameter_bytes(&self) -> u32;
    /// Returns the largest number of threads in a block: the smaller of the kernel's limit and the
    /// device's.
    fn block_threads_max(&self) -> u32;
    /// Returns how many bytes of shared memory the kernel's code declares for each block.
    fn shared_bytes(&self) -> u32;
    /// Returns the maximum number of bytes of dynamic shared memory that a launch may request for
    /// each block.
    fn dynamic_shared_bytes_max(&self) -> u32;

    /// Returns the kernel's CUDA attributes, by their numbers in `CUfunction_attribute`; `None` for
    /// those that the back end does not know. The default implementation tells what the other
    /// methods say.
    fn cuda_attributes(&self) -> [Option<i32>; KERNEL_ATTRIBUTES] {
        let value = |number: u32| i32::try_from(number).ok();
        let mut attributes = [None; KERNEL_ATTRIBUTES];
        attributes[0] = value(self.block_threads_max());
        attributes[1] = value(self.shared_bytes());
        attributes[8] = value(self.dynamic_shared_bytes_max());
        attributes
    }

    /// Returns whether launches of the kernel may print text
    /// ([`Space::take_output`](super::Space::take_output)). The default implementation suits back
    /// ends whose kernels cannot print.
    fn prints(&self) -> bool {
        false
    }

    /// Checks whether the kernel can be launched in `shape`, which
    /// [`Launch::new`](super::Launch::new) has found to be within all other limits. The default
    /// implementation accepts every shape.
    ///
    /// # Errors
    /// A text that says why this back end cannot launch the kernel in this shape.
    fn check_shape(&self, shape: &LaunchShape) -> Result<(), String> {
        let _ = shape;
        Ok(())
    }

    /// Checks whether a launch of the kernel in `shape`, which is within all other limits, can have
    /// `options`. The default implementation suits back ends that run any number of blocks at the
    /// same time, and have no clusters.
    ///
    /// # Errors
    /// A fault with the status `BadLaunch`, which says why this back end cannot launch the kernel
    /// with these options.
    fn check_options(&self, shape: &LaunchShape, options: &LaunchOptions) -> Result<(), Fault> {
        let _ = shape;
        refuse_clusters(options)
    }

    /// Returns how many bytes of the host's memory a launch in `shape` with `options` takes while
    /// it is executed, beyond the little that each queue may take. The session is charged for them.
    /// The default implementation suits back ends whose device has the memory.
    fn launch_bytes(&self, shape: &LaunchShape, options: &LaunchOptions) -> u64 {
        let _ = (shape, options);
        0
    }

    /// Returns `self` as [`Any`], so that the back end can downcast it to its own type.
    fn as_any(&self) -> &dyn Any;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that says no more than it must.
    struct Plain;

    impl Kernel for Plain {
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
            0
        }

        fn dynamic_shared_bytes_max(&self) -> u32 {
            0
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn what_a_kernel_does_not_say_is_what_suits_most() {
        let shape = LaunchShape {
            shared_bytes: 0,
            grid: [4, 1, 1],
            block: [1; 3],
        };
        assert!(!Plain.prints());
        assert_eq!(Plain.check_shape(&shape), Ok(()));
        for (cluster, fits) in [([0; 3], true), ([1; 3], true), ([2, 1, 1], false)] {
            let options = LaunchOptions { flags: 0, cluster };
            let checked = Plain.check_options(&shape, &options);
            assert_eq!(checked.is_ok(), fits, "{cluster:?}");
        }
        // The session is charged for nothing that the device has.
        assert_eq!(Plain.launch_bytes(&shape, &LaunchOptions::PLAIN), 0);
    }
}
