//! Allocations and how CPU and GPU see them.

use core::mem::ManuallyDrop;

use causeway_protocol::Access;
use causeway_protocol::message::{self, AllocateReply, MemoryKind, PREVIOUS, operation};

use crate::device::{Device, ExportToken};
use crate::error::{AllocateError, ExportError, FencePlaceError, FreeError, MapError, RemapError};
use crate::fence::Fence;
use crate::space::AddressSpace;
use crate::window::Window;

/// Bytes of a page, to which mappings are aligned.
pub const PAGE_BYTES: u64 = 4096;

/// Memory behind a handle: an allocation, an import, or registered guest RAM. Freed on drop, with every
/// mapping of it in this session.
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

    /// Maps a page-aligned range at any free GPU virtual address.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map_gpu(
        &self,
        space: &AddressSpace<'d>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<GpuMapping<'d>, MapError> {
        space.map_at(self, offset, bytes, access, 0)
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

/// A range of an allocation at a GPU virtual address. Lives until it is unmapped or its allocation freed.
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
/// It lives until it is unmapped or its allocation freed. Touching it later is harmless to the program: it
/// finds a hole, which reads all-ones, or what has been mapped there since.
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

/// Memory allocated, mapped for the GPU and mapped for the CPU by a single batch, hence a single exit.
pub struct Buffer<'d> {
    /// The memory.
    pub allocation: Allocation<'d>,
    /// All of it, for the GPU.
    pub gpu: GpuMapping<'d>,
    /// All of it, for the CPU.
    pub cpu: CpuMapping<'d>,
}

impl<'d> Buffer<'d> {
    /// Allocates `bytes` bytes (rounded up to pages) and maps them read-write on both sides.
    ///
    /// # Errors
    /// [`AllocateError`]; what a part of the batch did before another failed is undone.
    pub fn new(
        device: &'d Device<'d>,
        space: &AddressSpace<'d>,
        bytes: u64,
        kind: MemoryKind,
    ) -> Result<Self, AllocateError> {
        let length = bytes.next_multiple_of(PAGE_BYTES);
        let access = Access::ReadWrite.wire();
        let mut batch = device.batch();
        let allocate = batch.push::<operation::Allocate>(&message::Allocate {
            size: bytes,
            kind: kind as u32,
            flags: 0,
        });
        let gpu = batch.push::<operation::MapGpu>(&message::MapGpu {
            space: space.handle(),
            allocation: PREVIOUS,
            offset: 0,
            length,
            address: 0,
            access,
            reserved: 0,
        });
        let cpu = batch.push::<operation::MapCpu>(&message::MapCpu {
            allocation: PREVIOUS,
            access,
            offset: 0,
            length,
        });
        let replies = batch.execute();
        let allocated = replies.require(allocate);
        let mapped = replies
            .require(gpu)
            .and_then(|gpu| Ok((gpu, replies.require(cpu)?)));
        drop(replies); // Other CPUs, and a drop of the allocation, need the control area.
        let failed = |refusal| AllocateError {
            bytes,
            kind,
            refusal,
        };
        let allocation = Allocation::from_reply(device, &allocated.map_err(failed)?);
        let (gpu, cpu) = mapped.map_err(failed)?;
        let cpu = CpuMapping::at(device, cpu.address, length).map_err(failed)?;
        let gpu = GpuMapping::new(device, space.handle(), gpu.address, length);
        Ok(Self {
            allocation,
            gpu,
            cpu,
        })
    }

    /// The 64-bit fence at `offset` bytes; 8-byte aligned.
    ///
    /// # Errors
    /// [`FencePlaceError`].
    pub fn fence(&self, offset: u64) -> Result<Fence<'d>, FencePlaceError> {
        Fence::new(&self.gpu, &self.cpu, offset)
    }

    /// Gives memory and mappings up. One exit.
    ///
    /// # Errors
    /// [`FreeError`].
    pub fn free(self) -> Result<(), FreeError> {
        self.allocation.free()
    }
}
