//! Limits of the device that lowering, execution and the attributes of the back end share.

/// Most threads of a block.
pub(crate) const BLOCK_THREADS_MAX: u32 = 1024;
/// Most bytes of shared memory of a block: as many as NVIDIA GPUs have at most.
pub(crate) const SHARED_BYTES_MAX: u32 = 227 << 10;
/// Number of barriers of a block.
pub(crate) const BARRIERS: usize = 16;
/// Most bytes of dynamic shared memory of a block that CUDA programs may ask for without opting in.
pub(crate) const SHARED_BYTES_USUAL: u32 = 48 << 10;
/// Compute capability that the device tells, ten times the major number plus the minor number.
pub(crate) const CAPABILITY: i32 = 90;
/// Registers of a thread that kernels tell: any number of registers is there, and this one lets a
/// block have all its threads by the rules of a GPU.
pub(crate) const REGISTERS: i32 = 32;
