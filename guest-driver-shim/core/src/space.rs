//! GPU address spaces.

use core::mem::ManuallyDrop;

use causeway_protocol::Access;
use causeway_protocol::message::{self, operation};

use crate::device::Device;
use crate::error::{MapError, SpaceError};
use crate::memory::{Allocation, GpuMapping};

/// A GPU address space. A drop ends it with its mappings, modules and command buffers.
#[derive(Debug)]
pub struct AddressSpace<'d> {
    device: &'d Device<'d>,
    handle: u32,
}

impl Device<'_> {
    /// Creates a GPU address space. One exit.
    ///
    /// # Errors
    /// [`SpaceError`] if a limit of the session is reached.
    pub fn create_space(&self) -> Result<AddressSpace<'_>, SpaceError> {
        let reply = self
            .call::<operation::CreateSpace>(&message::Empty {})
            .map_err(|refusal| SpaceError { refusal })?;
        Ok(AddressSpace {
            device: self,
            handle: reply.handle,
        })
    }
}

impl<'d> Allocation<'d> {
    /// Maps `bytes` bytes of this allocation from `offset`, both multiples of the page size, at a
    /// free address of `space`. One exit.
    ///
    /// # Errors
    /// [`MapError`] if the range is outside the allocation, `access` exceeds its rights, or a limit
    /// of the session is reached.
    pub fn map_gpu(
        &self,
        space: &AddressSpace<'d>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<GpuMapping<'d>, MapError> {
        space.map_at(self, offset, bytes, access, 0)
    }
}

impl<'d> AddressSpace<'d> {
    /// Returns the handle that messages use for this address space.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.handle
    }

    /// Returns the device that has created this address space.
    #[must_use]
    pub const fn device(&self) -> &'d Device<'d> {
        self.device
    }

    /// Maps `bytes` bytes of `allocation` from `offset`, both multiples of the page size, at GPU
    /// virtual address `address`, or at a free one if `address` is zero. One exit.
    ///
    /// # Errors
    /// [`MapError`] if the range is outside the allocation, `access` exceeds its rights, the
    /// address is in use, or a limit of the session is reached.
    pub fn map_at(
        &self,
        allocation: &Allocation<'d>,
        offset: u64,
        bytes: u64,
        access: Access,
        address: u64,
    ) -> Result<GpuMapping<'d>, MapError> {
        let request = message::MapGpu {
            space: self.handle,
            allocation: allocation.handle(),
            offset,
            length: bytes,
            address,
            access: access.wire(),
            reserved: 0,
        };
        self.device
            .call::<operation::MapGpu>(&request)
            .map(|reply| GpuMapping::new(self.device, self.handle, reply.address, bytes))
            .map_err(|refusal| MapError {
                offset,
                bytes,
                access,
                refusal,
            })
    }

    /// Ends the address space with its mappings, modules and command buffers. One exit.
    ///
    /// # Errors
    /// [`SpaceError`] if the session is lost.
    pub fn destroy(self) -> Result<(), SpaceError> {
        ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<(), SpaceError> {
        self.device
            .call::<operation::DestroySpace>(&message::HandleRequest {
                handle: self.handle,
                reserved: 0,
            })
            .map(drop)
            .map_err(|refusal| SpaceError { refusal })
    }
}

impl Drop for AddressSpace<'_> {
    fn drop(&mut self) {
        // The session may have been lost or reset; the address space is then gone already.
        let _ = self.release();
    }
}
