//! Allocations and how CPU and GPU see them.

use causeway_protocol::Access;
use causeway_protocol::message::{
    self, AllocateReply, MemoryKind, Opcode, Status, allocate_flags, operation,
};

use crate::device::{Device, ExportToken, FabricHandle};
use crate::error::{
    AllocateError, ExportError, FreeError, ImportError, MapError, Refusal, RegisterError,
    RemapError,
};
use crate::object::Object;
use crate::window::Window;

/// Size of a page in bytes. Mappings are aligned to pages.
pub const PAGE_BYTES: u64 = 4096;

impl Device<'_> {
    /// Allocates `bytes` bytes of memory filled with zeros. The size is rounded up to the device's
    /// granularity. One exit.
    ///
    /// # Errors
    /// [`AllocateError`] if a limit of the session is reached, or the device has no memory left or
    /// does not offer memory of this kind.
    pub fn allocate(&self, bytes: u64, kind: MemoryKind) -> Result<Allocation<'_>, AllocateError> {
        self.allocate_with(bytes, kind, 0)
    }

    /// Allocates `bytes` bytes of GPU memory as [`Self::allocate`] does, for which there is
    /// [`Allocation::fabric_handle`]. One exit.
    ///
    /// # Errors
    /// As for [`Self::allocate`]; `Unsupported` without the feature
    /// [`FABRIC_EXPORT`](causeway_protocol::registers::features::FABRIC_EXPORT).
    pub fn allocate_for_fabric(&self, bytes: u64) -> Result<Allocation<'_>, AllocateError> {
        self.allocate_with(bytes, MemoryKind::Device, allocate_flags::FABRIC)
    }

    fn allocate_with(
        &self,
        bytes: u64,
        kind: MemoryKind,
        flags: u32,
    ) -> Result<Allocation<'_>, AllocateError> {
        let request = message::Allocate {
            size: bytes,
            kind: kind as u32,
            flags,
        };
        self.call::<operation::Allocate>(&request)
            .map(|reply| Allocation::from_reply(self, &reply))
            .map_err(|refusal| AllocateError {
                bytes,
                kind,
                refusal,
            })
    }

    /// Registers the `bytes` bytes of guest RAM at guest-physical `address` with the device, so
    /// that they can be used like an allocation of [`MemoryKind::Host`]. Address and length must be
    /// multiples of the page size. One exit.
    ///
    /// # Errors
    /// [`RegisterError`] if the range is not RAM or not aligned, or a limit of the session is
    /// reached.
    pub fn register_ram(&self, address: u64, bytes: u64) -> Result<Allocation<'_>, RegisterError> {
        let length = bytes;
        self.call::<operation::RegisterRam>(&message::RegisterRam { address, length })
            .map(|reply| Allocation::from_reply(self, &reply))
            .map_err(|refusal| RegisterError {
                address,
                bytes,
                refusal,
            })
    }

    /// Imports the allocation that another session exports by `token`, with the rights `access`.
    /// One exit.
    ///
    /// # Errors
    /// [`ImportError`] if no export has this token, the export grants less than `access`, or a
    /// limit of the session is reached.
    pub fn import(
        &self,
        token: &ExportToken,
        access: Access,
    ) -> Result<Allocation<'_>, ImportError> {
        let request = message::Import {
            token: token.0,
            access: access.wire(),
            reserved: 0,
        };
        self.call::<operation::Import>(&request)
            .map(|reply| Allocation::from_reply(self, &reply))
            .map_err(|refusal| ImportError { access, refusal })
    }

    /// Imports memory of `bytes` bytes by its fabric handle. It counts as memory of this session.
    /// One exit.
    ///
    /// # Errors
    /// [`ImportError`] with `BadToken` if no memory has this handle now, `BadMemory` if it has
    /// another size, `Unsupported` without the feature
    /// [`FABRIC_IMPORT`](causeway_protocol::registers::features::FABRIC_IMPORT), or if a limit of
    /// the session is reached.
    pub fn import_fabric(
        &self,
        handle: &FabricHandle,
        bytes: u64,
    ) -> Result<Allocation<'_>, ImportError> {
        self.ask_fabric(handle, bytes)
            .map(|reply| Allocation::from_reply(self, &reply))
    }

    /// Looks whether memory has this fabric handle now, without importing it. One exit.
    ///
    /// # Errors
    /// As for [`Self::import_fabric`].
    pub fn find_fabric(&self, handle: &FabricHandle) -> Result<(), ImportError> {
        self.ask_fabric(handle, 0).map(drop)
    }

    fn ask_fabric(&self, handle: &FabricHandle, size: u64) -> Result<AllocateReply, ImportError> {
        let handle = handle.0;
        self.call::<operation::ImportFabric>(&message::ImportFabric { handle, size })
            .map_err(|refusal| ImportError {
                access: Access::ReadWrite,
                refusal,
            })
    }

    /// Ends the export of this session that has this token. When the function returns, the sessions
    /// that imported the allocation can no longer access its memory. One exit.
    ///
    /// # Errors
    /// [`ExportError`] if this session has no export with this token.
    pub fn revoke(&self, token: &ExportToken) -> Result<(), ExportError> {
        self.call::<operation::Revoke>(&message::Token { token: token.0 })
            .map(drop)
            .map_err(|refusal| ExportError { refusal })
    }
}

/// Memory with a handle: an allocation, an import, or registered guest RAM. Dropping this value
/// frees the memory and ends all its mappings in this session.
#[derive(Debug)]
pub struct Allocation<'d> {
    object: Object<'d, operation::Free>,
    bytes: u64,
    access: Access,
}

impl<'d> Allocation<'d> {
    pub(crate) fn from_reply(device: &'d Device<'d>, reply: &AllocateReply) -> Self {
        Self {
            object: Object::new(device, reply.handle),
            bytes: reply.size,
            access: Access::from_wire(reply.access).unwrap_or(Access::None),
        }
    }

    /// Returns the handle that messages use for this memory.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.object.handle
    }

    /// Returns the size in bytes, rounded up to the device's granularity.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the maximum access rights of a mapping of this memory.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Maps the `bytes` bytes at `offset` of this memory into the aperture, with the rights
    /// `access`. Offset and length must be multiples of the page size. One exit.
    ///
    /// # Errors
    /// [`MapError`] if the range is outside the allocation, `access` exceeds its rights, the CPU
    /// cannot access memory of this kind, or the aperture has no room.
    pub fn map_cpu(
        &self,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<CpuMapping<'d>, MapError> {
        let device = self.object.device;
        let request = message::MapCpu {
            allocation: self.handle(),
            access: access.wire(),
            offset,
            length: bytes,
        };
        device
            .call::<operation::MapCpu>(&request)
            .and_then(|reply| CpuMapping::at(device, reply.address, bytes))
            .map_err(|refusal| MapError {
                offset,
                bytes,
                access,
                refusal,
            })
    }

    /// Exports this allocation, and returns a token. Another session that has the token can import
    /// the allocation, with at most the rights `access`. One exit.
    ///
    /// # Errors
    /// [`ExportError`] if `access` exceeds the allocation's rights or a limit of the session is
    /// reached.
    pub fn export(&self, access: Access) -> Result<ExportToken, ExportError> {
        self.export_to(access, 0)
    }

    /// Exports this allocation as [`Self::export`] does, to sessions on the GPUs that `gpus` names:
    /// bit `n` stands for GPU number `n` of [`Device::query_gpus`](crate::Device::query_gpus). Their
    /// kernels can then reach the memory; on GPUs that cannot be peers, only their copies can, from
    /// and to memory of their own GPU. 0 stands for the GPU of this session. One exit.
    ///
    /// # Errors
    /// As for [`Self::export`]; `BadGpu` if there is no such GPU.
    pub fn export_to(&self, access: Access, gpus: u64) -> Result<ExportToken, ExportError> {
        let request = message::Export {
            allocation: self.handle(),
            access: access.wire(),
            gpus,
        };
        self.object
            .device
            .call::<operation::Export>(&request)
            .map(|reply| ExportToken(reply.token))
            .map_err(|refusal| ExportError { refusal })
    }

    /// Returns the handle by which all machines of the fabric can import this allocation, which
    /// [`Device::allocate_for_fabric`] made. Nothing takes back what it gives: who has imported the
    /// memory keeps it after [`Self::free`]. One exit.
    ///
    /// # Errors
    /// [`ExportError`] with `BadMemory` if the allocation was made otherwise, `Unsupported` without
    /// the feature.
    pub fn fabric_handle(&self) -> Result<FabricHandle, ExportError> {
        let request = message::HandleRequest {
            handle: self.handle(),
            reserved: 0,
        };
        self.object
            .device
            .call::<operation::ExportFabric>(&request)
            .map(|reply| FabricHandle(reply.handle))
            .map_err(|refusal| ExportError { refusal })
    }

    /// Frees the memory and ends all its mappings in this session. One exit.
    ///
    /// # Errors
    /// [`FreeError`] if the memory is in use as a command buffer, or the session is lost.
    pub fn free(self) -> Result<(), FreeError> {
        let handle = self.handle();
        let freed = self.object.end();
        freed.map_err(|refusal| FreeError { handle, refusal })
    }
}

/// A range of an allocation that is mapped at a GPU virtual address. The mapping ends when
/// [`Self::unmap`] is called or its allocation is freed; dropping this value does not end it.
#[derive(Clone, Copy, Debug)]
pub struct GpuMapping<'d> {
    device: &'d Device<'d>,
    space: u32,
    address: u64,
    bytes: u64,
}

impl<'d> GpuMapping<'d> {
    pub(crate) const fn new(device: &'d Device<'d>, space: u32, address: u64, bytes: u64) -> Self {
        Self {
            device,
            space,
            address,
            bytes,
        }
    }

    /// Returns the first GPU virtual address of the mapping.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length of the mapping in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the handle of the address space that contains the mapping.
    #[must_use]
    pub const fn space(&self) -> u32 {
        self.space
    }

    pub(crate) const fn device(&self) -> &'d Device<'d> {
        self.device
    }

    /// Changes the access rights of the mapping to `access`. One exit.
    ///
    /// # Errors
    /// [`RemapError`] if the mapping has ended, or the allocation or the device does not allow the
    /// rights `access`.
    pub fn set_access(&self, access: Access) -> Result<(), RemapError> {
        set_access(self.device, self.space, self.address, access)
    }

    /// Ends the mapping. One exit.
    ///
    /// # Errors
    /// [`RemapError`] if the mapping has ended already.
    pub fn unmap(self) -> Result<(), RemapError> {
        let Self { space, address, .. } = self;
        self.device
            .call::<operation::UnmapGpu>(&message::SpaceAddress {
                space,
                reserved: 0,
                address,
            })
            .map(drop)
            .map_err(|refusal| RemapError { address, refusal })
    }
}

/// A range of an allocation that is mapped into the aperture. Plain loads and stores access it
/// without an exit.
///
/// The mapping ends when [`Self::unmap`] is called or its allocation is freed. A later access
/// through this value is harmless: it reads all-ones, or reaches what is mapped at that place by
/// then.
#[derive(Clone, Copy, Debug)]
pub struct CpuMapping<'d> {
    device: &'d Device<'d>,
    offset: u64,
    window: Window,
}

impl<'d> CpuMapping<'d> {
    /// The mapping at an aperture offset that the device has returned.
    pub(crate) fn at(device: &'d Device<'d>, offset: u64, bytes: u64) -> Result<Self, Refusal> {
        let window = device.aperture().part(offset as usize, bytes as usize);
        match window {
            Ok(window) if device.transport().reach(offset, bytes) => Ok(Self {
                device,
                offset,
                window,
            }),
            _ => Err(Refusal::new(Opcode::MapCpu, Status::BackEnd, offset as u32)),
        }
    }

    /// Returns the offset of the mapping in the aperture, in bytes.
    #[must_use]
    pub const fn aperture_offset(&self) -> u64 {
        self.offset
    }

    /// Returns a window over the mapped memory, for loads and stores by the CPU.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Changes the access rights of the mapping to `access`. One exit.
    ///
    /// # Errors
    /// [`RemapError`] if the mapping has ended, or the allocation or the device does not allow the
    /// rights `access`.
    pub fn set_access(&self, access: Access) -> Result<(), RemapError> {
        set_access(self.device, 0, self.offset, access)
    }

    /// Ends the mapping. One exit.
    ///
    /// # Errors
    /// [`RemapError`] if the mapping has ended already.
    pub fn unmap(self) -> Result<(), RemapError> {
        let address = self.offset;
        self.device
            .call::<operation::UnmapCpu>(&message::SpaceAddress {
                space: 0,
                reserved: 0,
                address,
            })
            .map(drop)
            .map_err(|refusal| RemapError { address, refusal })
    }
}

impl core::ops::Deref for CpuMapping<'_> {
    type Target = Window;
    fn deref(&self) -> &Window {
        &self.window
    }
}

fn set_access(
    device: &Device<'_>,
    space: u32,
    address: u64,
    access: Access,
) -> Result<(), RemapError> {
    device
        .call::<operation::SetAccess>(&message::SetAccess {
            space,
            access: access.wire(),
            address,
        })
        .map(drop)
        .map_err(|refusal| RemapError { address, refusal })
}
