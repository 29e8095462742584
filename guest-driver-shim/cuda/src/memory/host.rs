//! Host memory that the GPU reaches, at the CPU's address where the device allows that.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_protocol::message::HOST_ADDRESSES;
use causeway_protocol::registers::features;
use causeway_shim_linux::shim::{
    Access, AddressSpace, Allocation, Attributes, Device, ExportToken, ExportedPiece, GpuMapping,
    MemoryKind,
};

use super::free_ranges::FreeRanges;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::rings::Marks;

/// Size of the chunks that small pieces share.
const CHUNK_BYTES: u64 = 2 << 20;
/// Larger pieces have a chunk of their own.
const SHARED_BYTES_MAX: u64 = CHUNK_BYTES / 2;
/// Addresses of pieces are multiples of this.
const GRANULE_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 4096;

/// A piece of host memory. It stays allocated until it is freed.
#[derive(Debug)]
pub(crate) struct HostPiece {
    /// Address for the CPU.
    pub(crate) host: u64,
    /// Address for the GPU.
    pub(crate) gpu: u64,
    bytes: u64,
}

impl HostPiece {
    /// Returns how many bytes it has, which may be more than were asked for.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Host memory of the process, by chunks.
pub(super) struct HostMemory {
    device: &'static Device<'static>,
    space: &'static AddressSpace<'static>,
    /// Addresses at which the GPU can reach memory.
    addresses: Range<u64>,
    /// By the CPU's address.
    chunks: BTreeMap<u64, Chunk>,
    free: FreeRanges,
    /// Freed pieces, each with the last submissions that may use it.
    retired: VecDeque<(Marks, HostPiece)>,
    /// Whether small pieces share chunks.
    divides: bool,
    /// Tokens of the exports of pieces, by address. Each is of the chunk in which its piece lies.
    exports: BTreeMap<u64, ExportToken>,
}

/// An allocation with its mappings for CPU and GPU.
pub(super) struct Chunk {
    memory: Allocation<'static>,
    pub(super) host: u64,
    pub(super) gpu: u64,
    pub(super) bytes: u64,
}

impl Chunk {
    /// Returns the first and the last address.
    const fn bounds(&self) -> (u64, u64) {
        (self.host, self.host + (self.bytes - 1))
    }
}

impl HostMemory {
    pub(super) fn new(
        device: &'static Device<'static>,
        space: &'static AddressSpace<'static>,
        attributes: &Attributes,
    ) -> Self {
        let end = attributes.va_base.saturating_add(attributes.va_bytes);
        Self {
            device,
            space,
            addresses: attributes.va_base..end,
            chunks: BTreeMap::new(),
            free: FreeRanges::default(),
            retired: VecDeque::new(),
            divides: true,
            exports: BTreeMap::new(),
        }
    }

    /// Makes each piece a chunk of its own, which goes back to the device when it is freed. A
    /// process that has imported it may keep what its CPU has mapped: nothing else may come there.
    pub(super) fn undivided(mut self) -> Self {
        self.divides = false;
        self
    }

    /// Allocates a piece of `bytes` bytes, which are not zero.
    pub(super) fn allocate(&mut self, bytes: u64) -> Answer<HostPiece> {
        let granules = bytes.checked_next_multiple_of(GRANULE_BYTES);
        let bytes = granules.ok_or(Code::OUT_OF_MEMORY)?;
        let chunk_bytes = match self.divides && bytes <= SHARED_BYTES_MAX {
            true => CHUNK_BYTES,
            false => bytes
                .checked_next_multiple_of(PAGE_BYTES)
                .ok_or(Code::OUT_OF_MEMORY)?,
        };
        let free = match self.divides && chunk_bytes == CHUNK_BYTES {
            true => self.free.take(bytes),
            false => None,
        };
        let host = match free {
            Some(host) => host,
            None => self.add(bytes, chunk_bytes)?,
        };
        Ok(HostPiece {
            host,
            gpu: self.gpu_address(host).unwrap_or(host),
            bytes,
        })
    }

    /// Adds a chunk, and takes its first bytes.
    fn add(&mut self, bytes: u64, chunk_bytes: u64) -> Answer<u64> {
        let chunk = self.chunk(chunk_bytes)?;
        let (host, bounds) = (chunk.host, chunk.bounds());
        if bytes < chunk.bytes {
            self.free.give(host + bytes, chunk.bytes - bytes, bounds);
        }
        self.chunks.insert(host, chunk);
        Ok(host)
    }

    fn gpu_address(&self, host: u64) -> Option<u64> {
        let (start, chunk) = self.chunks.range(..=host).next_back()?;
        Some(chunk.gpu + (host - start))
    }

    /// Frees a piece once the work that was submitted before has ended.
    pub(super) fn retire(&mut self, driver: &Driver, piece: HostPiece) {
        let marks = driver.rings.marks();
        driver.rings.ask(driver, &marks);
        self.retired.push_back((marks, piece));
        self.collect(driver);
    }

    /// Frees the retired pieces whose work has ended.
    pub(super) fn collect(&mut self, driver: &Driver) {
        let is_over = |(marks, _): &mut (Marks, HostPiece)| driver.rings.are_reached(marks);
        while let Some((_, piece)) = self.retired.pop_front_if(is_over) {
            self.free(piece);
        }
    }

    /// Frees a piece that no work uses any more. Other processes lose it.
    pub(super) fn free(&mut self, piece: HostPiece) {
        if let Some(token) = self.exports.remove(&piece.host)
            && let Err(error) = self.device.revoke(&token)
        {
            log::warn!("other processes keep memory that was freed: {error}");
        }
        let Some((_, chunk)) = self.chunks.range(..=piece.host).next_back() else {
            return;
        };
        let (start, bytes) = (chunk.host, chunk.bytes);
        self.free.give(piece.host, piece.bytes, chunk.bounds());
        let is_shared = self.divides && bytes == CHUNK_BYTES;
        if !is_shared && self.free.take_whole(start, bytes) {
            self.chunks.remove(&start);
        }
    }

    /// Gives the chunks that no piece uses back to the device.
    pub(super) fn trim(&mut self, driver: &Driver) {
        self.collect(driver);
        let free = &mut self.free;
        self.chunks
            .retain(|start, chunk| !free.take_whole(*start, chunk.bytes));
    }

    /// Exports the chunk of a piece to other processes, until the piece is freed.
    pub(super) fn export(&mut self, piece: &HostPiece) -> Answer<ExportedPiece> {
        let found = self.chunks.range(..=piece.host).next_back();
        let (start, chunk) = found.ok_or(Code::INVALID_VALUE)?;
        let token = match self.exports.get(&piece.host) {
            Some(token) => *token,
            None => chunk.memory.export(Access::ReadWrite).map_err(|error| {
                log::warn!("cannot export memory of the host: {error}");
                Code::OUT_OF_MEMORY
            })?,
        };
        self.exports.insert(piece.host, token);
        Ok(ExportedPiece {
            token,
            offset: piece.host - start,
            chunk_bytes: chunk.bytes,
        })
    }

    /// Allocates and maps a chunk of whole pages.
    pub(super) fn chunk(&self, bytes: u64) -> Answer<Chunk> {
        let refused = |error: &dyn std::fmt::Display| {
            log::debug!("cannot allocate host memory: {error}");
            Code::OUT_OF_MEMORY
        };
        let memory = self.device.allocate(bytes, MemoryKind::Host);
        let memory = memory.map_err(|error| refused(&error))?;
        // The GPU maps whole units of its own.
        let bytes = memory.bytes();
        let (host, gpu) = self.map_for_both(&memory, bytes)?;
        Ok(Chunk {
            memory,
            host,
            gpu,
            bytes,
        })
    }

    /// Maps memory of the host for the CPU, and for the GPU at the same address if possible.
    /// Returns both addresses.
    pub(super) fn map_for_both(
        &self,
        memory: &Allocation<'static>,
        bytes: u64,
    ) -> Answer<(u64, u64)> {
        let cpu = memory.map_cpu(0, bytes, Access::ReadWrite);
        let cpu = cpu.map_err(|error| {
            log::debug!("cannot map host memory: {error}");
            Code::OUT_OF_MEMORY
        })?;
        let host = cpu.window().as_ptr().as_ptr() as u64;
        Ok((host, self.map(memory, bytes, host)?.address()))
    }

    /// Returns whether the device may let host memory have these addresses.
    fn may_choose(&self, wanted: u64, bytes: u64) -> bool {
        let lies_in = |range: &Range<u64>| {
            range.contains(&wanted) && wanted.saturating_add(bytes) <= range.end
        };
        let has_window = self.device.features() & features::HOST_ADDRESSES != 0;
        lies_in(&self.addresses) || has_window && lies_in(&HOST_ADDRESSES)
    }

    /// Maps memory for the GPU at `wanted`, or elsewhere if the device does not allow that.
    pub(super) fn map(
        &self,
        memory: &Allocation<'static>,
        bytes: u64,
        wanted: u64,
    ) -> Answer<GpuMapping<'static>> {
        static SAID: AtomicBool = AtomicBool::new(false);
        let access = Access::ReadWrite;
        if self.may_choose(wanted, bytes) {
            match self.space.map_at(memory, 0, bytes, access, wanted) {
                Ok(mapping) => return Ok(mapping),
                Err(error) => log::debug!("host memory has another address for the GPU: {error}"),
            }
        }
        if !SAID.swap(true, Ordering::Relaxed) {
            log::info!(
                "host memory at {wanted:#x} has another address for the GPU: programs must ask for \
                 it (cuMemHostGetDevicePointer)"
            );
        }
        let mapping = memory.map_gpu(self.space, 0, bytes, access);
        mapping.map_err(|error| {
            log::debug!("cannot map host memory for the GPU: {error}");
            Code::OUT_OF_MEMORY
        })
    }
}
