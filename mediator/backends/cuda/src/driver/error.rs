//! What the driver says when a call fails.

use std::fmt;

/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: u32 = 100;
/// `CUDA_ERROR_NOT_FOUND`.
pub(crate) const NOT_FOUND: u32 = 500;
/// `CUDA_ERROR_NOT_READY`: no error, but work under way.
pub(crate) const NOT_READY: u32 = 600;

/// Codes after which, as their documentation in cuda.h says, the process must be ended: every later call gives the
/// same error. (214 and 220 are uncorrectable errors of memory and NVLink.)
const STICKY: [u32; 13] = [
    214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721,
];

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// The entry point.
    pub call: &'static str,
    /// The result, a `CUresult` or a code that it does not have.
    pub code: u32,
    /// Name and meaning, as the driver gives them.
    pub text: String,
}

impl CudaError {
    /// Whether the process is of no more use to the GPU.
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
