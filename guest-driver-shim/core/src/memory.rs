//! Allocations and how CPU and GPU see them.

use core::mem::ManuallyDrop;

use causeway_protocol::Access;
use causeway_protocol::message::{self, AllocateReply, MemoryKind, operation};

use crate::device::{Device, ExportToken};
use crate::error::{
    AllocateError, ExportError, FreeError, ImportError, MapError, RegisterError, RemapError,
};
use crate::window::Window;

/// Bytes of a page, to which mappings are aligned.
pub const PAGE_BYTES: u64 = 4096;

impl Device<'_> {
    /// Allocates `bytes` bytes, rounded up to the device's granularity. The memory is zero. One
    /// exit.
    ///
    /// # Errors
    /// [`AllocateError`] if a limit of the session is reached, the device has no memory left, or it
    /// has no memory of this kind.
    pub fn allocate(&self, bytes: u64, kind: MemoryKind) -> Result<Allocation<'_>, AllocateError> {
        let request = message::Allocate {
            size: bytes,
            kind: kind as u32,
            flags: 0,
        };
        let reply = self
            .call::<operation::Allocate>(&request)
            .map_err(|refusal| AllocateError {
                bytes,
                kind,
                refusal,
            })?;
        Ok(Allocation::from_reply(self, &reply))
    }

    /// Makes guest RAM usable like an allocation of host kind. `address` (guest-physical) and
    /// `bytes` are multiples of the page size. One exit.
    ///
    /// # Errors
    /// [`RegisterError`] if the range is not RAM or not aligned, or a limit of the session is
    /// reached.
    pub fn register_ram(&self, address: u64, bytes: u64) -> Result<Allocation<'_>, RegisterError> {
        let reply = self
            .call::<operation::RegisterRam>(&message::RegisterRam {
                address,
                length: bytes,
            })
            .map_err(|refusal| RegisterError {
                address,
                bytes,
                refusal,
            })?;
        Ok(Allocation::from_reply(self, &reply))
    }

    /// Imports an allocation that another session exports. One exit.
    ///
    /// # Errors
    /// [`ImportError`] if no export has this token, it grants less than `access`, or a limit of the
    /// session is reached.
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
        let reply = self
            .call::<operation::Import>(&request)
            .map_err(|refusal| ImportError { access, refusal })?;
        Ok(Allocation::from_reply(self, &reply))
    }

    /// Takes an export back. When this returns, no import made from it reaches the memory any more.
    ///
    /// # Errors
    /// [`ExportError`] if this session has no export with this token.
    pub fn revoke(&self, token: &ExportToken) -> Result<(), ExportError> {
        self.call::<operation::Revoke>(&message::Token { token: token.0 })
            .map(drop)
            .map_err(|refusal| ExportError { refusal })
    }
}

/// Memory behind a handle: an allocation, an import, or registered guest RAM. A drop frees it, with
/// every mapping of it in this session.
#[derive(Debug)]
pub struct Allocation<'d> {
    device: &'d Device<'d>,
    handle: u32,
    bytes: u64,
    access: Access,
}

impl<'d> Allocation<'d> {
    pub(crate) fn from_reply(device: &'d Device<'d>, reply: &AllocateReply) -> Self {
        let access = Access::from_wire(reply.access).unwrap_or(Access::None);
        Self {
            device,
            handle: reply.handle,
            bytes: reply.size,
            access,
        }
    }

    /// Returns the handle, which this session's messages name it by.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.handle
    }

    /// Returns the size in bytes, rounded up to the device's granularity.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the most rights that a mapping of it can have.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Maps a page-aligned range into the aperture. One exit.
    ///
    /// # Errors
    /// [`MapError`] if the range or the rights exceed the allocation's, the CPU cannot see memory
    /// of this kind, or the aperture has no room.
    pub fn map_cpu(
        &self,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<CpuMapping<'d>, MapError> {
        let request = message::MapCpu {
            allocation: self.handle,
            access: access.wire(),
            offset,
            length: bytes,
        };
        self.device
            .call::<operation::MapCpu>(&request)
            .and_then(|reply| CpuMapping::at(self.device, reply.address, bytes))
            .map_err(|refusal| MapError {
                offset,
                bytes,
                access,
                refusal,
            })
    }

    /// Exports this allocation: another session can import it by the token, with at most these
    /// rights. One exit.
    ///
    /// # Errors
    /// [`ExportError`] if the rights exceed the allocation's or a limit of the session is reached.
    pub fn export(&self, access: Access) -> Result<ExportToken, ExportError> {
        let request = message::Export {
            allocation: self.handle,
            access: access.wire(),
        };
        self.device
            .call::<operation::Export>(&request)
            .map(|reply| ExportToken(reply.token))
            .map_err(|refusal| ExportError { refusal })
    }

    /// Frees the memory, with every mapping of it in this session. One exit.
    ///
    /// # Errors
    /// [`FreeError`] if the memory is in use as a command buffer, or the session is lost.
    pub fn free(self) -> Result<(), FreeError> {
        ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<(), FreeError> {
        let handle = self.handle;
        self.device
            .call::<operation::Free>(&message::HandleRequest {
                handle,
                reserved: 0,
            })
            .map(drop)
            .map_err(|refusal| FreeError { handle, refusal })
    }
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        // The session may have been lost or reset; the memory is then gone already.
        let _ = self.release();
    }
}

/// A range of an allocation at a GPU virtual address. The mapping ends with [`Self::unmap`] or with
/// its allocation, not with a drop.
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

    /// Returns the first GPU virtual address.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the handle of the address space.
    #[must_use]
    pub const fn space(&self) -> u32 {
        self.space
    }

    pub(crate) const fn device(&self) -> &'d Device<'d> {
        self.device
    }

    /// Changes the access rights. One exit.
    ///
    /// # Errors
    /// [`RemapError`] if the mapping has ended, or the allocation or the device does not allow
    /// these rights.
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

/// A range of an allocation in the aperture: plain loads and stores, no exits.
///
/// The mapping ends with [`Self::unmap`] or with its allocation. An access after that is harmless:
/// it reads all-ones, or reaches what is mapped there then.
#[derive(Clone, Copy, Debug)]
pub struct CpuMapping<'d> {
    device: &'d Device<'d>,
    offset: u64,
    window: Window,
}

impl<'d> CpuMapping<'d> {
    /// The mapping at an aperture offset that the device has returned.
    pub(crate) fn at(
        device: &'d Device<'d>,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, crate::Refusal> {
        let window = device.aperture().part(offset as usize, bytes as usize);
        match window {
            Ok(window) if device.transport().reach(offset, bytes) => Ok(Self {
                device,
                offset,
                window,
            }),
            _ => Err(crate::Refusal {
                opcode: Some(message::Opcode::MapCpu),
                status: message::Status::BackEnd,
                detail: offset as u32,
            }),
        }
    }

    /// Returns the offset into the aperture in bytes.
    #[must_use]
    pub const fn aperture_offset(&self) -> u64 {
        self.offset
    }

    /// Returns the memory.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Changes the access rights. One exit.
    ///
    /// # Errors
    /// [`RemapError`] if the mapping has ended, or the allocation or the device does not allow
    /// these rights.
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
