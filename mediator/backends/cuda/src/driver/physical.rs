//! Physical memory of the GPU: allocations behind a handle, without an address.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};

use super::{Context, CudaError};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX_DESCRIPTOR: u32 = 1;
/// `CU_MEM_ALLOCATION_COMP_GENERIC`.
const COMPRESSIBLE: u8 = 1;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
const GRANULARITY_MINIMUM: u32 = 0;

/// What other processes can be given for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleKind {
    /// A file descriptor.
    Descriptor,
    /// A handle that reaches other machines.
    Fabric,
}

/// How memory is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalOptions {
    pub(crate) handle: HandleKind,
    pub(crate) compressible: bool,
}

impl PhysicalOptions {
    /// Memory that other processes reach through a descriptor, and not compressible.
    pub(crate) const EXPORTABLE: Self = Self {
        handle: HandleKind::Descriptor,
        compressible: false,
    };
}

/// Memory of the GPU, until dropped and no longer mapped.
pub(crate) struct Physical {
    context: Arc<Context>,
    raw: CUmemGenericAllocationHandle,
    bytes: u64,
}

fn properties(context: &Context, options: PhysicalOptions) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: match options.handle {
            HandleKind::Descriptor => {
                CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            }
            HandleKind::Fabric => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC,
        },
        location: CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: context.device().raw,
        },
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: if options.compressible {
                COMPRESSIBLE
            } else {
                0
            },
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

impl Physical {
    /// What sizes must be multiples of, in bytes.
    pub(crate) fn granularity_bytes(
        context: &Context,
        options: PhysicalOptions,
    ) -> Result<u64, CudaError> {
        let driver = context.enter()?;
        let properties = properties(context, options);
        let mut bytes = 0;
        // SAFETY: reads the properties, stores a size.
        unsafe { driver.mem_get_granularity(&mut bytes, &properties, GRANULARITY_MINIMUM) }?;
        Ok(bytes as u64)
    }

    /// `bytes` bytes with whatever they held before; a multiple of the granularity.
    pub(crate) fn create(
        context: &Arc<Context>,
        bytes: u64,
        options: PhysicalOptions,
    ) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        let properties = properties(context, options);
        let mut raw = 0;
        // SAFETY: reads the properties, stores a handle, which `drop` releases.
        unsafe { driver.mem_create(&mut raw, bytes as usize, &properties, 0) }?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
            bytes,
        })
    }

    /// What another process exported. That it has `bytes` bytes shows only when it is mapped.
    pub(crate) fn import(
        context: &Arc<Context>,
        file: &OwnedFd,
        bytes: u64,
    ) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        let mut raw = 0;
        // For this kind of handle, the descriptor itself is what the pointer is
        // (cuMemImportFromShareableHandle).
        let shareable = std::ptr::without_provenance_mut(file.as_raw_fd() as usize);
        // SAFETY: the driver looks at a descriptor, which stays ours; stores a handle.
        unsafe { driver.mem_import(&mut raw, shareable, POSIX_DESCRIPTOR) }?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
            bytes,
        })
    }

    /// Returns a descriptor by which another process can import it.
    pub(crate) fn export(&self) -> Result<OwnedFd, CudaError> {
        let driver = self.context.enter()?;
        let mut file: c_int = -1;
        // SAFETY: for this kind of handle, an `int` is stored.
        unsafe { driver.mem_export((&raw mut file).cast(), self.raw, POSIX_DESCRIPTOR, 0) }?;
        // SAFETY: a new descriptor, which nobody else knows.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        if let Err(e) = rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC) {
            log::debug!("an exported descriptor stays open over exec: {e}");
        }
        Ok(file)
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the driver's handle.
    pub(super) fn raw(&self) -> CUmemGenericAllocationHandle {
        self.raw
    }

    /// Returns the context in which it is mapped and unmapped.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if self.context.is_poisoned() || self.context.enter().is_err() {
            return;
        }
        // SAFETY: mappings keep the memory itself; the handle is not used again.
        if let Err(e) = unsafe { self.context.driver().mem_release(self.raw) } {
            log::error!("{} bytes of GPU memory were not released: {e}", self.bytes);
        }
    }
}
