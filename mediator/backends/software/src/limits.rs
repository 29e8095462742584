//! Limits of the device that lowering, execution and the attributes of the back end share.

/// Most threads of a block.
pub(crate) const BLOCK_THREADS_MAX: u32 = 1024;
/// Most bytes of shared memory of a block: as many as NVIDIA GPUs have at most.
pub(crate) const SHARED_BYTES_MAX: u32 = 227 << 10;
/// Number of barriers of a block.
pub(crate) const BARRIERS: usize = 16;
