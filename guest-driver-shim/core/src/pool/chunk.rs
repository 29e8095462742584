//! Memory that a pool gives out in pieces, or as one.

use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;

use super::piece::{Origin, Piece};
use crate::buffer::MappedMemory;
use crate::device::{Device, ExportToken};
use crate::error::{AllocateError, ExportError, FreeError};
use crate::memory::{Allocation, CpuMapping};
use crate::window::Window;

/// An allocation that is mapped for the GPU and, unless it is of device kind, for the CPU.
#[derive(Debug)]
pub(super) struct Chunk<'d> {
    allocation: Allocation<'d>,
    /// GPU virtual address of the chunk; a multiple of the page size.
    pub address: u64,
    /// Size of the chunk and its mappings in bytes.
    pub bytes: u64,
    cpu: Option<CpuMapping<'d>>,
    pub role: Role,
    /// A number that no other chunk of the pool has.
    pub number: u64,
}

/// How a chunk is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Cut into pieces; `first` is the number of its first block.
    Divided { first: u32 },
    /// One piece.
    Whole,
    /// Was one piece, and waits to become one again; `since` counts large pieces that were freed
    /// before.
    Kept { since: u64 },
}

impl<'d> Chunk<'d> {
    /// Allocates and maps `bytes` bytes, a multiple of the device's granularity, in one batch.
    /// `space` is the handle of the address space, and the address there; a free one if that is 0.
    pub fn new(
        device: &'d Device<'d>,
        space: (u32, u64),
        kind: MemoryKind,
        bytes: u64,
    ) -> Result<Self, AllocateError> {
        let for_cpu = kind != MemoryKind::Device;
        let mapped = MappedMemory::new(device, kind, bytes, Some(space), for_cpu)?;
        let Some(gpu) = mapped.gpu else {
            unreachable!("the mapping was asked for")
        };
        Ok(Self {
            allocation: mapped.allocation,
            address: gpu.address(),
            bytes,
            cpu: mapped.cpu,
            role: Role::Whole,
            number: 0,
        })
    }

    /// Returns the `bytes` bytes of this chunk at `address` as a piece, which records `origin`.
    pub fn piece(&self, address: u64, bytes: u64, origin: Origin) -> Piece {
        let offset = (address - self.address) as usize;
        let part = |cpu: &CpuMapping<'_>| cpu.window().part(offset, bytes as usize).ok();
        let window: Option<Window> = self.cpu.as_ref().and_then(part);
        Piece {
            address,
            bytes,
            window,
            origin,
        }
    }

    /// Returns the lowest address in the chunk that is a multiple of `alignment`, or `None` if
    /// `bytes` bytes do not fit between it and the end of the chunk.
    pub fn place(&self, bytes: u64, alignment: u64) -> Option<u64> {
        let begin = self.address.checked_next_multiple_of(alignment)?;
        let end = begin.checked_add(bytes)?;
        (end <= self.address.checked_add(self.bytes)?).then_some(begin)
    }

    /// Returns whether the whole chunk is in use as one piece and contains `address`.
    pub fn is_whole_piece(&self, address: u64) -> bool {
        let inside = address.checked_sub(self.address);
        self.role == Role::Whole && inside.is_some_and(|inside| inside < self.bytes)
    }

    /// Exports the chunk's memory to other sessions on the GPUs `gpus`, bit `n` of which stands for
    /// GPU `n`; to those on the own GPU if that is 0. One exit.
    pub fn export_to(&self, access: Access, gpus: u64) -> Result<ExportToken, ExportError> {
        self.allocation.export_to(access, gpus)
    }

    /// Frees the chunk's memory on the device, and returns its size in bytes. One exit.
    pub fn free(self) -> Result<u64, FreeError> {
        let bytes = self.bytes;
        self.allocation.free().map(|()| bytes)
    }
}
