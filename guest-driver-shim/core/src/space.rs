//! GPU address spaces.

use causeway_protocol::Access;
use causeway_protocol::message::{self, operation};

use crate::device::Device;
use crate::error::{MapError, QueryError, SpaceError};
use crate::memory::{Allocation, GpuMapping};
use crate::object::Object;

/// A GPU address space. Dropping this value ends the address space with its mappings, modules and
/// command buffers.
#[derive(Debug)]
pub struct AddressSpace<'d>(Object<'d, operation::DestroySpace>);

impl Device<'_> {
    /// Creates a GPU address space. One exit.
    ///
    /// # Errors
    /// [`SpaceError`] if a limit of the session is reached.
    pub fn create_space(&self) -> Result<AddressSpace<'_>, SpaceError> {
        self.call::<operation::CreateSpace>(&message::Empty {})
            .map(|reply| AddressSpace(Object::new(self, reply.handle)))
            .map_err(|refusal| SpaceError { refusal })
    }
}

impl<'d> Allocation<'d> {
    /// Maps the `bytes` bytes at `offset` of this allocation at a free GPU virtual address of
    /// `space`, with the rights `access`. Offset and length must be multiples of the page size. One
    /// exit.
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
        self.0.handle
    }

    /// Returns the device on which this address space was created.
    #[must_use]
    pub const fn device(&self) -> &'d Device<'d> {
        self.0.device
    }

    /// Takes the oldest text that kernels in this address space have printed: the first
    /// `text_bytes` bytes of the reply. If all bytes are in use, there may be more. One exit.
    ///
    /// # Errors
    /// [`QueryError`] if the session is lost, or if the host speaks a version of the protocol
    /// before 1.3 (`BadOpcode`).
    pub fn take_output(&self) -> Result<message::OutputReply, QueryError> {
        let request = message::HandleRequest {
            handle: self.handle(),
            reserved: 0,
        };
        let reply = self.0.device.call::<operation::ReadOutput>(&request);
        reply.map_err(|refusal| QueryError { refusal })
    }

    /// Describes a tensor of `request` in this address space, for the GPU. One exit.
    ///
    /// # Errors
    /// [`QueryError`] if the session is lost, the device does not read such descriptions
    /// (`Unsupported`), the tensor is not mapped (`MemoryFault`), or if the host speaks a version
    /// of the protocol without this message (`BadOpcode`).
    pub fn encode_tensor_map(
        &self,
        request: &message::EncodeTensorMap,
    ) -> Result<message::TensorMapReply, QueryError> {
        let request = message::EncodeTensorMap {
            space: self.handle(),
            ..*request
        };
        let reply = self.0.device.call::<operation::EncodeTensorMap>(&request);
        reply.map_err(|refusal| QueryError { refusal })
    }

    /// Maps the `bytes` bytes at `offset` of `allocation` at GPU virtual address `address`, or at a
    /// free address if `address` is zero, with the rights `access`. Offset and length must be
    /// multiples of the page size. One exit.
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
        let (device, space) = (self.device(), self.handle());
        let request = message::MapGpu {
            space,
            allocation: allocation.handle(),
            offset,
            length: bytes,
            address,
            access: access.wire(),
            reserved: 0,
        };
        device
            .call::<operation::MapGpu>(&request)
            .map(|reply| GpuMapping::new(device, space, reply.address, bytes))
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
        self.0.end().map_err(|refusal| SpaceError { refusal })
    }
}
