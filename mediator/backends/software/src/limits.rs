//! Limits of the device that lowering, execution and the attributes of the back end share.

/// Threads of a block, at most.
pub(crate) const BLOCK_THREADS_MAX: u32 = 1024;
/// Shared memory of a block in bytes, at most: the most that NVIDIA GPUs offer.
pub(crate) const SHARED_BYTES_MAX: u32 = 227 << 10;
/// Barriers of a block.
pub(crate) const BARRIERS: usize = 16;
