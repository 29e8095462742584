//! Pieces of memory without an exit for each.
//!
//! A [`Pool`] allocates and maps memory by the chunk, one exit each, and cuts pieces from it. Free
//! ranges are in segregated lists, so neither allocating nor freeing depends on the number of
//! pieces. The pool's records lie in a [`PoolStorage`] of the guest's own, never in memory that the
//! device sees.
//!
//! A piece that a chunk has no room for is a chunk by itself. When it is freed, the pool keeps it
//! for the next of about that size, up to a number of bytes.

mod blocks;
mod chunk;
mod classes;
mod error;
mod piece;
mod whole;
mod window;

use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Opcode, Status};

use crate::device::{Device, ExportToken};
use crate::error::{AllocateError, ExportError, FreeError, QueryError, Refusal};
use crate::memory::PAGE_BYTES;
use crate::space::AddressSpace;
use blocks::{Block, Blocks, TakeError, Taken};
use chunk::{Chunk, Role};
pub use classes::GRANULE_BYTES;
pub use error::{PoolError, PoolFreeError};
use piece::Origin;
pub use piece::Piece;
use window::AddressWindow;

/// Bytes of freed large pieces that a pool keeps, unless told otherwise.
const KEPT_BYTES: u64 = 256 << 20;

/// Storage for the records of a [`Pool`], which the program provides. It has room for the records
/// of `CHUNKS` chunks (the allocations that the pool makes on the device) and of `BLOCKS` pieces
/// and free ranges of chunks.
#[derive(Debug)]
pub struct PoolStorage<'d, const BLOCKS: usize, const CHUNKS: usize> {
    blocks: [Block; BLOCKS],
    chunks: [Option<Chunk<'d>>; CHUNKS],
}

impl<const BLOCKS: usize, const CHUNKS: usize> PoolStorage<'_, BLOCKS, CHUNKS> {
    /// Returns empty storage, for a new pool.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            blocks: [Block::SPARE; BLOCKS],
            chunks: [const { None }; CHUNKS],
        }
    }
}

impl<const BLOCKS: usize, const CHUNKS: usize> Default for PoolStorage<'_, BLOCKS, CHUNKS> {
    fn default() -> Self {
        Self::new()
    }
}

/// Where another session finds a piece, once it has imported the chunk that contains it.
#[derive(Clone, Copy, Debug)]
pub struct ExportedPiece {
    /// Token of the chunk's export.
    pub token: ExportToken,
    /// Offset of the piece in the chunk, in bytes.
    pub offset: u64,
    /// Size of the chunk in bytes.
    pub chunk_bytes: u64,
}

/// A chunk of a pool: an allocation on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPlace {
    /// A number that no other chunk of the pool has, before or afterwards.
    pub number: u64,
    /// GPU virtual address of the chunk in the address space of the pool.
    pub address: u64,
    /// Size of the chunk in bytes.
    pub bytes: u64,
}

/// A pool of memory from which small pieces are allocated without an exit for each. Only one CPU
/// may use it at a time. Dropping the pool frees all its memory, including pieces that are still in
/// use.
#[derive(Debug)]
pub struct Pool<'s, 'd> {
    device: &'d Device<'d>,
    space: u32,
    kind: MemoryKind,
    /// Where chunks get their addresses; `None` if the device chooses them.
    window: Option<AddressWindow>,
    /// Sizes of chunks are multiples of it.
    granularity_bytes: u64,
    chunk_bytes: u64,
    kept_bytes: u64,
    /// Whether memory stays here although the device has a shortage.
    keeps_all: bool,
    kept_bytes_max: u64,
    /// Large pieces freed so far.
    gifts: u64,
    /// Chunks made so far.
    made: u64,
    blocks: Blocks<'s>,
    chunks: &'s mut [Option<Chunk<'d>>],
}

impl<'s, 'd> Pool<'s, 'd> {
    /// Returns an empty pool of memory of kind `kind`, mapped in `space`, which keeps its records
    /// in `storage`. The pool allocates memory from the device in chunks of `chunk_bytes` bytes,
    /// rounded up to the device's granularity. One exit.
    ///
    /// # Errors
    /// [`QueryError`] if the session is lost.
    pub fn new<const BLOCKS: usize, const CHUNKS: usize>(
        space: &AddressSpace<'d>,
        kind: MemoryKind,
        chunk_bytes: u64,
        storage: &'s mut PoolStorage<'d, BLOCKS, CHUNKS>,
    ) -> Result<Self, QueryError> {
        let device = space.device();
        let granularity_bytes = device.attributes()?.granularity_bytes.max(PAGE_BYTES);
        let chunk_bytes = chunk_bytes
            .max(1)
            .checked_next_multiple_of(granularity_bytes)
            .unwrap_or(granularity_bytes);
        storage.chunks.fill_with(|| None);
        Ok(Self {
            device,
            space: space.handle(),
            kind,
            window: None,
            granularity_bytes,
            chunk_bytes,
            kept_bytes: 0,
            keeps_all: false,
            kept_bytes_max: KEPT_BYTES,
            gifts: 0,
            made: 0,
            blocks: Blocks::new(&mut storage.blocks),
            chunks: &mut storage.chunks,
        })
    }

    /// Sets the maximum size of the freed memory that the pool keeps for later pieces larger than a
    /// chunk, instead of returning it to the device. The default is 256 MiB.
    #[must_use]
    pub const fn keeping(mut self, bytes: u64) -> Self {
        self.kept_bytes_max = bytes;
        self
    }

    /// Makes the pool choose the addresses of its chunks, all of them from `first` to below `end`,
    /// instead of leaving them to the device: what other pools and devices have does not lie there.
    #[must_use]
    pub const fn within(mut self, first: u64, end: u64) -> Self {
        self.window = Some(AddressWindow::new(first, end));
        self
    }

    /// Allocates a piece of `bytes` bytes whose GPU virtual address is a multiple of `alignment`
    /// and of [`GRANULE_BYTES`]. Takes no exit unless the pool needs another chunk. The content of
    /// the piece is undefined: it may be that of an earlier piece.
    ///
    /// # Errors
    /// [`PoolError::Layout`] if `bytes` is zero or too large, or `alignment` is not a power of two;
    /// [`PoolError::Blocks`] or [`PoolError::Chunks`] if the storage is full;
    /// [`PoolError::Refused`] if the device refuses another chunk.
    pub fn allocate(&mut self, bytes: u64, alignment: u64) -> Result<Piece, PoolError> {
        let (rounded, most) = Self::layout(bytes, alignment)?;
        if most > self.chunk_bytes {
            return self.allocate_whole(rounded, alignment, most);
        }
        let alignment = alignment.max(GRANULE_BYTES);
        let taken = match self.blocks.take(rounded, alignment) {
            Err(TakeError::NoRoom) => {
                let first = self.grow()?;
                self.blocks.take_from(first, rounded, alignment)
            }
            taken => taken,
        };
        match taken {
            Ok(taken) => Ok(self.piece(taken, rounded)),
            Err(_) => Err(self.out_of_blocks()),
        }
    }

    /// Allocates a piece as [`Self::allocate`] does, but only from the memory that the pool has:
    /// returns `None` if the pool needs another chunk. Never takes an exit.
    ///
    /// # Errors
    /// [`PoolError::Layout`] and [`PoolError::Blocks`], as for [`Self::allocate`].
    pub fn take(&mut self, bytes: u64, alignment: u64) -> Result<Option<Piece>, PoolError> {
        let (rounded, most) = Self::layout(bytes, alignment)?;
        if most > self.chunk_bytes {
            return match self.best_kept(rounded, alignment, most) {
                Some(_) => self.allocate_whole(rounded, alignment, most).map(Some),
                None => Ok(None),
            };
        }
        match self.blocks.take(rounded, alignment.max(GRANULE_BYTES)) {
            Ok(taken) => Ok(Some(self.piece(taken, rounded))),
            Err(TakeError::NoRoom) => Ok(None),
            Err(TakeError::NoBlocks) => Err(self.out_of_blocks()),
        }
    }

    /// Allocates a piece as [`Self::allocate`] does, but gives no memory back to the device if the
    /// device has a shortage: work that was submitted may still use what is free in the pool.
    ///
    /// # Errors
    /// As for [`Self::allocate`].
    pub fn allocate_without_trim(
        &mut self,
        bytes: u64,
        alignment: u64,
    ) -> Result<Piece, PoolError> {
        self.keeps_all = true;
        let piece = self.allocate(bytes, alignment);
        self.keeps_all = false;
        piece
    }

    /// Exports the chunk in which `piece` lies, with the rights `access`, as
    /// [`Allocation::export`](crate::Allocation::export) does. One exit.
    ///
    /// # Errors
    /// [`ExportError`] if the device refuses.
    pub fn export(&self, piece: &Piece, access: Access) -> Result<ExportedPiece, ExportError> {
        let chunk = self.chunks.get(piece.origin.chunk as usize);
        let Some(Some(chunk)) = chunk else {
            let refusal = Refusal::new(Opcode::Export, Status::BadHandle, piece.origin.chunk);
            return Err(ExportError { refusal });
        };
        Ok(ExportedPiece {
            token: chunk.export_to(access, 0)?,
            offset: piece.address.saturating_sub(chunk.address),
            chunk_bytes: chunk.bytes,
        })
    }

    /// Exports the chunk that contains `address` to sessions on the GPUs `gpus`, as
    /// [`Allocation::export_to`](crate::Allocation::export_to) does. One exit. Returns `None` if no
    /// chunk contains it.
    ///
    /// # Errors
    /// [`ExportError`] if the device refuses.
    pub fn export_chunk(
        &self,
        address: u64,
        access: Access,
        gpus: u64,
    ) -> Result<Option<ExportToken>, ExportError> {
        let chunk = self.chunk_with(address);
        chunk.map(|chunk| chunk.export_to(access, gpus)).transpose()
    }

    /// Returns the chunk that contains `address`.
    #[must_use]
    pub fn chunk_at(&self, address: u64) -> Option<ChunkPlace> {
        self.chunk_with(address).map(|chunk| ChunkPlace {
            number: chunk.number,
            address: chunk.address,
            bytes: chunk.bytes,
        })
    }

    fn chunk_with(&self, address: u64) -> Option<&Chunk<'d>> {
        let contains = |chunk: &&Chunk<'d>| {
            let inside = address.checked_sub(chunk.address);
            inside.is_some_and(|inside| inside < chunk.bytes)
        };
        self.chunks.iter().flatten().find(contains)
    }

    /// Checks what is asked for. Returns the size in granules, and with what alignment may cost.
    fn layout(bytes: u64, alignment: u64) -> Result<(u64, u64), PoolError> {
        let wrong = PoolError::Layout { bytes, alignment };
        if bytes == 0 || !alignment.is_power_of_two() {
            return Err(wrong);
        }
        let rounded = bytes.checked_next_multiple_of(GRANULE_BYTES).ok_or(wrong)?;
        // Chunks begin on a page: so much a piece may have to be moved to be aligned.
        let slack = alignment.saturating_sub(PAGE_BYTES);
        let most = rounded.checked_add(slack).ok_or(wrong)?;
        Ok((rounded, most))
    }

    /// Frees a piece. The GPU must have finished all work that uses it. Takes no exit unless the
    /// pool returns memory of large pieces to the device.
    ///
    /// # Errors
    /// [`PoolFreeError::Foreign`] if the piece is from another pool; [`PoolFreeError::Refused`] if
    /// the device refuses to free memory that the pool returns.
    pub fn free(&mut self, piece: Piece) -> Result<(), PoolFreeError> {
        let Origin { chunk, block } = piece.origin;
        let Some(block) = block else {
            return self.free_whole(piece, chunk);
        };
        let found = self.chunks.get(chunk as usize).and_then(Option::as_ref);
        let divided = found.is_some_and(|chunk| matches!(chunk.role, Role::Divided { .. }));
        if !divided || !self.blocks.is_taken(block, piece.address) {
            return Err(PoolFreeError::Foreign(piece));
        }
        self.blocks.give(block);
        Ok(())
    }

    /// Returns every chunk in which no piece is in use to the device, with one exit for each chunk.
    /// Returns the total size of these chunks in bytes.
    ///
    /// # Errors
    /// [`FreeError`] for the first chunk that the device refuses to free. The pool no longer uses
    /// this chunk.
    pub fn trim(&mut self) -> Result<u64, FreeError> {
        let mut bytes = 0;
        for index in 0..self.chunks.len() {
            let idle = match self.chunks[index].as_ref().map(|chunk| chunk.role) {
                Some(Role::Divided { first }) => self.blocks.remove_chunk(first),
                Some(Role::Kept { .. }) => true,
                Some(Role::Whole) | None => false,
            };
            if idle {
                bytes += self.give_back(index)?;
            }
        }
        Ok(bytes)
    }

    /// Returns the size in bytes of all memory that the pool has allocated from the device, whether
    /// pieces use it or not.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.chunks.iter().flatten().map(|chunk| chunk.bytes).sum()
    }

    /// Returns the size of a normal chunk in bytes. A piece larger than this gets a chunk of its
    /// own.
    #[must_use]
    pub const fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    fn piece(&self, taken: Taken, bytes: u64) -> Piece {
        let origin = Origin {
            chunk: taken.chunk,
            block: Some(taken.block),
        };
        match self.chunks.get(taken.chunk as usize) {
            Some(Some(chunk)) => chunk.piece(taken.address, bytes, origin),
            _ => unreachable!("a block lies in a chunk of the pool"),
        }
    }

    /// Adds a chunk, to be divided. Gives its first block.
    fn grow(&mut self) -> Result<u32, PoolError> {
        if self.blocks.spares() == 0 {
            return Err(self.out_of_blocks());
        }
        let index = self.obtain(self.chunk_bytes)?;
        let Some(chunk) = &mut self.chunks[index] else {
            unreachable!("it has just been put there")
        };
        let first = self
            .blocks
            .add_chunk(index as u32, chunk.address, chunk.bytes);
        let Some(first) = first else {
            unreachable!("a block is spare: trimming makes more of them")
        };
        chunk.role = Role::Divided { first };
        Ok(first)
    }

    /// A new chunk in the table: gives its number. If table or quota have no room, idle chunks make
    /// some.
    fn obtain(&mut self, bytes: u64) -> Result<usize, PoolError> {
        let vacant = |pool: &Self| pool.chunks.iter().position(Option::is_none);
        let index = match vacant(self) {
            Some(index) => index,
            None => {
                // A chunk that the device does not take back is lost, but its place is free.
                let _ = self.trim_unless_kept();
                let capacity = self.chunks.len();
                vacant(self).ok_or(PoolError::Chunks { capacity })?
            }
        };
        let chunk = match self.new_chunk(bytes) {
            Err(error)
                if error.status().is_shortage()
                    && self.trim_unless_kept().is_ok_and(|freed| freed != 0) =>
            {
                self.new_chunk(bytes)
            }
            chunk => chunk,
        };
        let mut chunk = chunk.map_err(PoolError::Refused)?;
        self.made += 1;
        chunk.number = self.made;
        self.chunks[index] = Some(chunk);
        Ok(index)
    }

    /// Allocates and maps a chunk, at an address of the window if there is one.
    fn new_chunk(&mut self, bytes: u64) -> Result<Chunk<'d>, AllocateError> {
        let (device, space, kind) = (self.device, self.space, self.kind);
        let Some(window) = &mut self.window else {
            return Chunk::new(device, (space, 0), kind, bytes);
        };
        window.place(bytes, |address| {
            Chunk::new(device, (space, address), kind, bytes)
        })
    }

    fn trim_unless_kept(&mut self) -> Result<u64, FreeError> {
        match self.keeps_all {
            true => Ok(0),
            false => self.trim(),
        }
    }

    /// Gives a chunk, of which no piece is in use, back to the device. Gives its bytes.
    fn give_back(&mut self, index: usize) -> Result<u64, FreeError> {
        let Some(chunk) = self.chunks[index].take() else {
            return Ok(0);
        };
        if matches!(chunk.role, Role::Kept { .. }) {
            self.kept_bytes -= chunk.bytes;
        }
        chunk.free()
    }

    fn out_of_blocks(&self) -> PoolError {
        let capacity = self.blocks.capacity();
        PoolError::Blocks { capacity }
    }
}

impl Drop for Pool<'_, '_> {
    fn drop(&mut self) {
        self.chunks.fill_with(|| None);
    }
}
