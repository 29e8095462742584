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
    /// New zeroed memory of `bytes` bytes, rounded up to the device's granularity.
    ///
    /// # Errors
    /// [`AllocateError`].
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

    /// Makes guest RAM usable like an allocation of host kind. Address and length are page-aligned.
    ///
    /// # Errors
    /// [`RegisterError`].
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

    /// An allocation that another session has exported.
    ///
    /// # Errors
    /// [`ImportError`].
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
    /// [`ExportError`].
    pub fn revoke(&self, token: &ExportToken) -> Result<(), ExportError> {
        self.call::<operation::Revoke>(&message::Token { token: token.0 })
            .map(drop)
            .map_err(|refusal| ExportError { refusal })
    }
}

/// Memory behind a handle: an allocation, an import, or registered guest RAM. Freed on drop, with
/// every mapping of it in this session.
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

    /// Handle of this session.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.handle
    }

    /// Size in bytes, after rounding.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the handle allows at most.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Maps a page-aligned range into the aperture.
    ///
    /// # Errors
    /// [`MapError`].
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

    /// Names this allocation so that another session can import it with at most these rights.
    ///
    /// # Errors
    /// [`ExportError`].
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

    /// Gives the memory up, with every mapping of it in this session.
    ///
    /// # Errors
    /// [`FreeError`].
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

/// A range of an allocation at a GPU virtual address. Lives until it is unmapped or its allocation
/// freed.
#[derive(Clone, Copy)]
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

    /// First GPU virtual address.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Handle of the address space.
    #[must_use]
    pub const fn space(&self) -> u32 {
        self.space
    }

    pub(crate) const fn device(&self) -> &'d Device<'d> {
        self.device
    }

    /// Changes the access rights.
    ///
    /// # Errors
    /// [`RemapError`].
    pub fn set_access(&self, access: Access) -> Result<(), RemapError> {
        set_access(self.device, self.space, self.address, access)
    }

    /// Ends the mapping.
    ///
    /// # Errors
    /// [`RemapError`].
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
/// It lives until it is unmapped or its allocation freed. Touching it later is harmless to the
/// program: it finds a hole, which reads all-ones, or what has been mapped there since.
#[derive(Clone, Copy)]
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

    /// Offset into the aperture in bytes.
    #[must_use]
    pub const fn aperture_offset(&self) -> u64 {
        self.offset
    }

    /// The memory.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Changes the access rights.
    ///
    /// # Errors
    /// [`RemapError`].
    pub fn set_access(&self, access: Access) -> Result<(), RemapError> {
        set_access(self.device, 0, self.offset, access)
    }

    /// Ends the mapping.
    ///
    /// # Errors
    /// [`RemapError`].
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
