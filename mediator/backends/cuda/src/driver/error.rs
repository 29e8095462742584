//! Errors of the driver's calls.

use std::fmt;

macro_rules! codes {
    (sticky: $($sticky:ident)*; others: $($other:ident)*) => {
        /// The results (`CUresult` in cuda.h) that this crate tells apart. They are numbers: a
        /// newer driver may return a result that [`CUresult`] does not have, and such a value of
        /// the enumeration would be undefined behaviour.
        pub(crate) mod code {
            use cudarc::driver::sys::CUresult;

            $(pub(crate) const $sticky: u32 = CUresult::$sticky as u32;)*
            $(pub(crate) const $other: u32 = CUresult::$other as u32;)*
        }

        /// Results after which, as their documentation in cuda.h says, the process must be ended:
        /// every later call returns the same result.
        const STICKY: &[u32] = &[$(code::$sticky),*];
    };
}

codes! {
    sticky:
        CUDA_ERROR_ECC_UNCORRECTABLE
        CUDA_ERROR_NVLINK_UNCORRECTABLE
        CUDA_ERROR_CONTAINED
        CUDA_ERROR_ILLEGAL_ADDRESS
        CUDA_ERROR_LAUNCH_TIMEOUT
        CUDA_ERROR_ASSERT
        CUDA_ERROR_HARDWARE_STACK_ERROR
        CUDA_ERROR_ILLEGAL_INSTRUCTION
        CUDA_ERROR_MISALIGNED_ADDRESS
        CUDA_ERROR_INVALID_ADDRESS_SPACE
        CUDA_ERROR_INVALID_PC
        CUDA_ERROR_LAUNCH_FAILED
        CUDA_ERROR_TENSOR_MEMORY_LEAK;
    others:
        CUDA_ERROR_INVALID_VALUE
        CUDA_ERROR_OUT_OF_MEMORY
        CUDA_ERROR_NO_DEVICE
        CUDA_ERROR_NO_BINARY_FOR_GPU
        CUDA_ERROR_JIT_COMPILER_NOT_FOUND
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        CUDA_ERROR_NOT_FOUND
        CUDA_ERROR_NOT_READY
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
        CUDA_ERROR_NOT_PERMITTED
        CUDA_ERROR_NOT_SUPPORTED
        CUDA_ERROR_INVALID_CLUSTER_SIZE
}

/// A call of the CUDA driver that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// Name of the driver's function, such as `cuMemCreate`.
    pub call: &'static str,
    /// The result of the call, a number of `CUresult` in cuda.h. A newer driver may return a number
    /// that cuda.h does not have.
    pub code: u32,
    /// Name and meaning of the result, as the driver reports them.
    pub text: String,
}

impl CudaError {
    /// Returns whether the error poisons the process: the driver refuses every later call.
    pub fn is_sticky(&self) -> bool {
        STICKY.contains(&self.code)
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.call, self.text, self.code)
    }
}

impl std::error::Error for CudaError {}
