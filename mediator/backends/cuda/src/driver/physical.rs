//! Physical memory of the GPU: allocations behind a handle, without an address.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use causeway_mediator::backend::FabricBytes;
use cudarc::driver::sys::{
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType, CUmemGenericAllocationHandle,
};
use log::Level;

use super::{Context, CudaError, Driver};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX_DESCRIPTOR: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`.
const FABRIC_HANDLE: u32 = 8;
/// `CU_MEM_ALLOCATION_COMP_GENERIC`.
const COMPRESSIBLE: u8 = 1;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
const GRANULARITY_MINIMUM: u32 = 0;

/// The properties that physical memory is allocated with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalOptions {
    /// By what other processes can import the memory: a bit set of `CUmemAllocationHandleType`.
    pub(crate) handles: u32,
    pub(crate) compressible: bool,
}

impl PhysicalOptions {
    /// Options for memory that other processes of the machine can import by a file descriptor, and
    /// that is not compressible.
    pub(crate) const EXPORTABLE: Self = Self {
        handles: POSIX_DESCRIPTOR,
        compressible: false,
    };
    /// Options for memory that any machine of an NVLink fabric can import, and that is not
    /// compressible.
    pub(crate) const FABRIC: Self = Self {
        handles: FABRIC_HANDLE,
        compressible: false,
    };

    /// Returns these options for memory that can be imported by a fabric handle, too.
    pub(crate) fn with_fabric(self, fabric: bool) -> Self {
        let more = u32::from(fabric) * FABRIC_HANDLE;
        let handles = self.handles | more;
        Self { handles, ..self }
    }
}

/// Physical memory of the GPU. The driver frees it when this was dropped and no mapping is left.
pub(crate) struct Physical {
    context: Arc<Context>,
    raw: CUmemGenericAllocationHandle,
    bytes: u64,
}

/// Returns the properties as the driver reads them. As a Rust value they are incomplete: their
/// handle types are a set, but an enumeration in cudarc.
fn properties(context: &Context, options: PhysicalOptions) -> MaybeUninit<CUmemAllocationProp> {
    let mut properties = MaybeUninit::new(CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: context.device().location(),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: u8::from(options.compressible) * COMPRESSIBLE,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    });
    // SAFETY: a field of the value above, which has 32 bits; nothing reads it as an enumeration
    // afterwards.
    unsafe {
        let handles = &raw mut (*properties.as_mut_ptr()).requestedHandleTypes;
        handles.cast::<u32>().write(options.handles);
    }
    properties
}

impl Physical {
    /// Returns the number of bytes of which the size of memory with these options must be a
    /// multiple.
    pub(crate) fn granularity_bytes(
        context: &Context,
        options: PhysicalOptions,
    ) -> Result<u64, CudaError> {
        let driver = context.enter()?;
        let properties = properties(context, options);
        let mut bytes = 0;
        // SAFETY: reads the properties, stores a size.
        unsafe {
            driver.mem_get_granularity(&mut bytes, properties.as_ptr(), GRANULARITY_MINIMUM)
        }?;
        Ok(bytes as u64)
    }

    /// Allocates `bytes` bytes, a multiple of the granularity. The memory still holds what its last
    /// user left there.
    pub(crate) fn create(
        context: &Arc<Context>,
        bytes: u64,
        options: PhysicalOptions,
    ) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        let properties = properties(context, options);
        let mut raw = 0;
        // SAFETY: reads the properties, stores a handle, which `drop` releases.
        unsafe { driver.mem_create(&mut raw, bytes as usize, properties.as_ptr(), 0) }?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
            bytes,
        })
    }

    /// Imports memory that another process exported as `file`. Whether it has `bytes` bytes shows
    /// only when it is mapped.
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

    /// Imports memory of any process of the fabric by its handle. Whether it has `bytes` bytes
    /// shows only when it is mapped.
    pub(crate) fn import_fabric(
        context: &Arc<Context>,
        handle: &FabricBytes,
        bytes: u64,
    ) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        let (mut raw, mut handle) = (0, *handle);
        let shareable = handle.as_mut_ptr().cast();
        // SAFETY: for this kind of handle, 64 bytes are read; stores a handle.
        unsafe { driver.mem_import(&mut raw, shareable, FABRIC_HANDLE) }?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
            bytes,
        })
    }

    /// Returns the handle by which any process of the fabric can import this memory.
    pub(crate) fn fabric_handle(&self) -> Result<FabricBytes, CudaError> {
        let driver = self.context.enter()?;
        let mut handle = [0; size_of::<FabricBytes>()];
        // SAFETY: for this kind of handle, 64 bytes are stored.
        unsafe { driver.mem_export(handle.as_mut_ptr().cast(), self.raw, FABRIC_HANDLE, 0) }?;
        Ok(handle)
    }

    /// Returns a descriptor by which another process can import this memory.
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

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the driver's handle of this memory.
    pub(super) fn raw(&self) -> CUmemGenericAllocationHandle {
        self.raw
    }

    /// Returns the context in which this memory is mapped and unmapped.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // SAFETY: mappings keep the memory itself; the handle is not used again.
        let release = |driver: &Driver| unsafe { driver.mem_release(self.raw) };
        let what = format_args!("{} bytes of GPU memory", self.bytes);
        self.context.release(Level::Error, what, release);
    }
}
