//! Host memory registered with the GPU.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use causeway_memory::Mapping;

use super::{Context, CudaError};

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`: for all contexts, and at a GPU
/// address.
const PORTABLE_AND_MAPPED: u32 = 1 | 2;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
const READ_ONLY: u32 = 8;

/// A mapping of host memory that the GPU can access, too, until dropped.
pub(crate) struct Registration {
    context: Arc<Context>,
    /// Dropped only when the GPU can no longer access the memory.
    mapping: ManuallyDrop<Mapping>,
    address: u64,
}

impl Registration {
    /// Registers `mapping` with the GPU. With `read_only`, the GPU can only read the memory, and
    /// the mapping may be read-only, too.
    pub(crate) fn new(
        context: &Arc<Context>,
        mapping: Mapping,
        read_only: bool,
    ) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        let host: *mut c_void = mapping.as_ptr().as_ptr().cast();
        let flags = PORTABLE_AND_MAPPED | if read_only { READ_ONLY } else { 0 };
        // SAFETY: the mapping is live until `drop` has unregistered it, and nothing in this process
        // refers to it by Rust references, so the GPU may write it at any time.
        unsafe { driver.mem_host_register(host, mapping.bytes() as usize, flags) }?;
        let mut registration = Self {
            context: Arc::clone(context),
            mapping: ManuallyDrop::new(mapping),
            address: 0,
        };
        // SAFETY: stores an address; the memory was just registered.
        unsafe { driver.mem_host_get_device_pointer(&mut registration.address, host, 0) }?;
        Ok(registration)
    }

    /// Returns the GPU address at which the memory begins.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the mapping by which this process accesses the memory.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for Registration {
    /// Memory that could not be unregistered stays mapped until the process ends: the GPU may still
    /// write it.
    fn drop(&mut self) {
        if self.context.is_poisoned() {
            return;
        }
        let host: *mut c_void = self.mapping.as_ptr().as_ptr().cast();
        let ended = self
            .context
            .enter()
            // SAFETY: registered by `new` at this address; running work that uses it holds
            // this, too.
            .and_then(|driver| unsafe { driver.mem_host_unregister(host) });
        match ended {
            // SAFETY: not used again.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.mapping) },
            Err(e) => log::debug!("the CUDA driver did not unregister host memory: {e}"),
        }
    }
}
