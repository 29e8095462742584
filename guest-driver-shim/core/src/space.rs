//! GPU address spaces.

use core::mem::ManuallyDrop;

use causeway_protocol::Access;
use causeway_protocol::message::{self, operation};

use crate::device::Device;
use crate::error::{MapError, SpaceError};
use crate::memory::{Allocation, GpuMapping};

/// A GPU address space. Ended on drop, with its mappings, modules and command buffers.
pub struct AddressSpace<'d> {
    device: &'d Device<'d>,
    handle: u32,
}

impl<'d> AddressSpace<'d> {
    pub(crate) fn create(device: &'d Device<'d>) -> Result<Self, SpaceError> {
        let reply = device
            .call::<operation::CreateSpace>(&message::Empty {})
            .map_err(|refusal| SpaceError { refusal })?;
        Ok(Self {
            device,
            handle: reply.handle,
        })
    }

    /// Handle of this session.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.handle
    }

    /// The device that it is of.
    #[must_use]
    pub const fn device(&self) -> &'d Device<'d> {
        self.device
    }

    /// Maps a page-aligned range of an allocation at `address`, or anywhere if that is zero.
    ///
    /// # Errors
    /// [`MapError`].
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

    /// Ends the address space.
    ///
    /// # Errors
    /// [`SpaceError`].
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
