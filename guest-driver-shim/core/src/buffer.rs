//! Memory that is allocated and mapped by one batch.

use causeway_protocol::Access;
use causeway_protocol::message::{self, MemoryKind, PREVIOUS, operation};

use crate::device::Device;
use crate::error::{AllocateError, FencePlaceError, FreeError};
use crate::fence::Fence;
use crate::memory::{Allocation, CpuMapping, GpuMapping, PAGE_BYTES};
use crate::space::AddressSpace;

/// An allocation and the mappings of all of it that were made with it.
#[derive(Debug)]
pub(crate) struct MappedMemory<'d> {
    pub allocation: Allocation<'d>,
    pub gpu: Option<GpuMapping<'d>>,
    pub cpu: Option<CpuMapping<'d>>,
}

impl<'d> MappedMemory<'d> {
    /// Allocates `bytes` bytes (rounded up to pages), and maps them readable and writable: into the
    /// address space that `space` names, if there is one, and for the CPU if `for_cpu` is true. One
    /// exit.
    ///
    /// `space` is the handle of the address space, and the address there; a free one if that is 0.
    ///
    /// # Errors
    /// [`AllocateError`] if the device refuses to allocate or to map the memory. Nothing stays
    /// allocated then.
    pub fn new(
        device: &'d Device<'d>,
        kind: MemoryKind,
        bytes: u64,
        space: Option<(u32, u64)>,
        for_cpu: bool,
    ) -> Result<Self, AllocateError> {
        let length = bytes.next_multiple_of(PAGE_BYTES);
        let access = Access::ReadWrite.wire();
        let mut batch = device.batch();
        let allocate = batch.push::<operation::Allocate>(&message::Allocate {
            size: bytes,
            kind: kind as u32,
            flags: 0,
        });
        let gpu = space.map(|(space, address)| {
            let ticket = batch.push::<operation::MapGpu>(&message::MapGpu {
                space,
                allocation: PREVIOUS,
                offset: 0,
                length,
                address,
                access,
                reserved: 0,
            });
            (space, ticket)
        });
        let cpu = for_cpu.then(|| {
            batch.push::<operation::MapCpu>(&message::MapCpu {
                allocation: PREVIOUS,
                access,
                offset: 0,
                length,
            })
        });
        let replies = batch.execute();
        let allocated = replies.require(allocate);
        let gpu = gpu.map(|(space, ticket)| replies.require(ticket).map(|reply| (space, reply)));
        let cpu = cpu.map(|ticket| replies.require(ticket));
        drop(replies); // Other CPUs, and a drop of the allocation, need the control area.
        let failed = |refusal| AllocateError {
            bytes,
            kind,
            refusal,
        };
        let allocation = Allocation::from_reply(device, &allocated.map_err(failed)?);
        let (gpu, cpu) = (
            gpu.transpose().map_err(failed)?,
            cpu.transpose().map_err(failed)?,
        );
        let cpu = cpu.map(|reply| CpuMapping::at(device, reply.address, length));
        Ok(Self {
            gpu: gpu.map(|(space, reply)| GpuMapping::new(device, space, reply.address, length)),
            cpu: cpu.transpose().map_err(failed)?,
            allocation,
        })
    }
}

/// Memory that is mapped for both the GPU and the CPU. It is allocated and mapped with one exit.
#[derive(Debug)]
pub struct Buffer<'d> {
    /// The allocation, which owns the memory and its mappings.
    pub allocation: Allocation<'d>,
    /// Mapping of the whole allocation for the GPU.
    pub gpu: GpuMapping<'d>,
    /// Mapping of the whole allocation for the CPU.
    pub cpu: CpuMapping<'d>,
}

impl<'d> Buffer<'d> {
    /// Allocates `bytes` bytes of memory, rounded up to pages, and maps it readable and writable
    /// for the GPU (in `space`) and for the CPU. One exit.
    ///
    /// # Errors
    /// [`AllocateError`] if the device refuses to allocate or to map the memory. Nothing stays
    /// allocated then.
    pub fn new(
        device: &'d Device<'d>,
        space: &AddressSpace<'d>,
        bytes: u64,
        kind: MemoryKind,
    ) -> Result<Self, AllocateError> {
        let mapped = MappedMemory::new(device, kind, bytes, Some((space.handle(), 0)), true)?;
        let (Some(gpu), Some(cpu)) = (mapped.gpu, mapped.cpu) else {
            unreachable!("both mappings were asked for")
        };
        Ok(Self {
            allocation: mapped.allocation,
            gpu,
            cpu,
        })
    }

    /// Returns the 64-bit fence at `offset` bytes from the beginning of the buffer.
    ///
    /// # Errors
    /// [`FencePlaceError`] if `offset` is outside the buffer or not a multiple of 8.
    pub fn fence(&self, offset: u64) -> Result<Fence<'d>, FencePlaceError> {
        Fence::new(&self.gpu, &self.cpu, offset)
    }

    /// Frees the memory and ends its mappings. One exit.
    ///
    /// # Errors
    /// [`FreeError`] if the memory is in use as a command buffer, or the session is lost.
    pub fn free(self) -> Result<(), FreeError> {
        self.allocation.free()
    }
}
