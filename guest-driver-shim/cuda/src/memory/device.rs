//! Device memory: pieces of the shim's pool.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_shim_linux::shim::{
    Access, AddressSpace, Attributes, ChunkPlace, ExportToken, ExportedPiece, MemoryKind, Piece,
    Pool, PoolError, PoolStorage, Status,
};

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::rings::Marks;

/// Sizes of pieces are multiples of this, and so their addresses are: textures of memory begin at
/// multiples of it, as attribute 14 of the device says.
const GRANULE_BYTES: u64 = 512;
/// Smallest and largest size of the chunks that the pool divides. With the largest, small pieces
/// can have 128 GiB.
const CHUNK_BYTES: [u64; 2] = [2 << 20, 64 << 20];
/// Part of the device's memory that a chunk may be.
const CHUNKS_OF_MEMORY: u64 = 32;
/// Most pieces and free ranges of divided chunks.
const BLOCKS: usize = 1 << 17;
/// Most chunks, and pieces larger than a chunk.
const CHUNKS: usize = 1 << 11;
/// Retired pieces that are looked at for one that is free again. Work of one ring may take long.
const OLDEST: usize = 64;
/// How long an allocation waits for retired pieces before it takes more memory of the device.
const RETIRED_SOON: Duration = Duration::from_millis(20);
/// Most pieces and free ranges, and most chunks, of a pool that other processes may use. Its chunks
/// are small, because an importer gets whole ones; a larger piece is a chunk by itself.
const SHARED_BLOCKS: usize = 1 << 13;
const SHARED_CHUNKS: usize = 1 << 10;
/// Bytes of freed large pieces that such a pool keeps.
const SHARED_KEPT_BYTES: u64 = 64 << 20;
/// Stack of the thread that makes the pool's storage, which is large.
const STACK_BYTES: usize = 32 << 20;

type Storage = PoolStorage<'static, BLOCKS, CHUNKS>;

/// Storage for the pool's records, which a thread makes.
pub(crate) struct FutureStorage(io::Result<JoinHandle<Box<Storage>>>);

/// The pool, and what it is to get back.
pub(super) struct DeviceMemory {
    pool: Pool<'static, 'static>,
    used_bytes: u64,
    /// Freed pieces that work may still use for which the next owner's work does not wait: each
    /// with the last submissions that may use it.
    retired: VecDeque<(Marks, Piece)>,
    /// The exports of pieces, by address. Each is of the whole chunk in which its piece lies.
    exports: BTreeMap<u64, ExportedPiece>,
    /// Whether it is that of a pool that other processes may use: they keep a freed piece until the
    /// work before has ended.
    is_shared: bool,
}

impl DeviceMemory {
    /// Returns an empty pool in `space`, with addresses in `window`, if there is one.
    pub(super) fn new(
        space: &AddressSpace<'static>,
        attributes: &Attributes,
        window: Option<Range<u64>>,
        storage: FutureStorage,
    ) -> Answer<Self> {
        let storage: &'static mut Storage = Box::leak(storage.wait()?);
        let [least, most] = CHUNK_BYTES;
        let chunk_bytes = (attributes.memory_bytes / CHUNKS_OF_MEMORY).clamp(least, most);
        let chunk_bytes = chunk_bytes.next_multiple_of(least);
        let pool = Pool::new(space, MemoryKind::Device, chunk_bytes, storage);
        let pool = pool.map_err(|error| {
            log::warn!("cannot prepare device memory: {error}");
            Code::DEVICE_UNAVAILABLE
        })?;
        let pool = pool.keeping(attributes.memory_bytes / 4);
        Ok(Self {
            pool: match window {
                Some(window) => pool.within(window.start, window.end),
                None => pool,
            },
            used_bytes: 0,
            retired: VecDeque::new(),
            exports: BTreeMap::new(),
            is_shared: false,
        })
    }

    /// Returns an empty pool in `space` for a pool that other processes may use. Its records stay
    /// until the process ends: it is to be used again.
    pub(super) fn of_shared_pool(space: &AddressSpace<'static>) -> Answer<Self> {
        type Records = PoolStorage<'static, SHARED_BLOCKS, SHARED_CHUNKS>;
        let storage: &'static mut Records = Box::leak(Box::default());
        let pool = Pool::new(space, MemoryKind::Device, CHUNK_BYTES[0], storage);
        let pool = pool.map_err(|error| {
            log::warn!("cannot prepare device memory for other processes: {error}");
            Code::DEVICE_UNAVAILABLE
        })?;
        Ok(Self {
            pool: pool.keeping(SHARED_KEPT_BYTES),
            used_bytes: 0,
            retired: VecDeque::new(),
            exports: BTreeMap::new(),
            is_shared: true,
        })
    }

    /// Allocates a piece.
    pub(super) fn allocate(
        &mut self,
        driver: &Driver,
        bytes: u64,
        alignment: u64,
    ) -> Answer<Piece> {
        if bytes > driver.attributes.memory_bytes {
            return Err(Code::OUT_OF_MEMORY);
        }
        let bytes = bytes.next_multiple_of(GRANULE_BYTES);
        if !self.retired.is_empty() {
            self.collect(driver);
        }
        let piece = match self
            .pool
            .take(bytes, alignment)
            .map_err(|error| refused(driver, &error))?
        {
            Some(piece) => piece,
            None => self.grow(driver, bytes, alignment)?,
        };
        self.used_bytes += piece.bytes();
        Ok(piece)
    }

    /// Allocates a piece for which the pool needs memory of the device. If the device has none, the
    /// pool gives back what it does not use: so all work has to be done before. That may wait for
    /// what the caller does next, so it is the last resort.
    #[cold]
    fn grow(&mut self, driver: &Driver, bytes: u64, alignment: u64) -> Answer<Piece> {
        if let Some(piece) = self.take_soon(driver, bytes, alignment)? {
            return Ok(piece);
        }
        if let Ok(piece) = self.pool.allocate_without_trim(bytes, alignment) {
            return Ok(piece);
        }
        driver.rings.drain(driver)?;
        self.collect(driver);
        if !self.is_shared {
            driver.memory.stores.trim(driver);
        }
        let grown = self.pool.allocate(bytes, alignment);
        grown.map_err(|error| refused(driver, &error))
    }

    /// Waits a little for retired pieces, rather than take more memory of the device.
    fn take_soon(&mut self, driver: &Driver, bytes: u64, alignment: u64) -> Answer<Option<Piece>> {
        let begun = Instant::now();
        while !self.retired.is_empty() && begun.elapsed() < RETIRED_SOON {
            self.collect(driver);
            let taken = self.pool.take(bytes, alignment);
            if let Some(piece) = taken.map_err(|error| refused(driver, &error))? {
                return Ok(Some(piece));
            }
            driver.rings.glance(driver)?;
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Frees a piece. Work that was submitted may still use it: with one ring, work of the next
    /// owner comes behind that, but the pool may give a piece that is a chunk by itself to the
    /// device. Other processes lose the memory before the program gets it again: at once, or behind
    /// the work if it is of a pool that they may use.
    ///
    /// `marks` are those of all work that may use it (`Rings::of_freed`).
    pub(super) fn free(&mut self, driver: &Driver, piece: Piece, marks: Option<Marks>) {
        self.used_bytes = self.used_bytes.saturating_sub(piece.bytes());
        if !self.is_shared {
            self.revoke(driver, &piece);
            let is_small = piece.bytes() <= self.pool.chunk_bytes();
            if is_small && marks.is_none() && driver.rings.may_reuse() {
                return give(&mut self.pool, piece);
            }
        }
        let marks = marks.unwrap_or_else(|| {
            let marks = driver.rings.marks();
            driver.rings.ask(driver, &marks);
            marks
        });
        self.retired.push_back((marks, piece));
        self.collect(driver);
    }

    /// Gives the pool the retired pieces whose work is finished, of the oldest ones.
    fn collect(&mut self, driver: &Driver) {
        let mut index = 0;
        while index < OLDEST
            && let Some((marks, _)) = self.retired.get(index)
        {
            if !driver.rings.are_reached(marks) {
                index += 1;
            } else if let Some((_, piece)) = self.retired.remove(index) {
                self.revoke(driver, &piece);
                give(&mut self.pool, piece);
            }
        }
    }

    /// Takes a piece away from other processes.
    fn revoke(&mut self, driver: &Driver, piece: &Piece) {
        if let Some(exported) = self.exports.remove(&piece.address())
            && let Err(error) = driver.device.revoke(&exported.token)
        {
            log::warn!("other processes keep memory that was freed: {error}");
        }
    }

    /// Gives memory that no piece uses back to the device, after all work.
    pub(super) fn trim(&mut self, driver: &Driver) -> Answer {
        driver.rings.drain(driver)?;
        self.trim_idle(driver)
    }

    /// Gives memory that no piece uses back to the device. Pieces of the pool are free only when no
    /// work uses them: it is one that other processes may use, or all work has ended.
    pub(super) fn trim_idle(&mut self, driver: &Driver) -> Answer {
        self.collect(driver);
        self.pool.trim().map(drop).map_err(|error| {
            log::warn!("cannot give memory back to the device: {error}");
            Code::UNKNOWN
        })
    }

    /// Exports the chunk of a piece to other processes, until the piece is freed.
    pub(super) fn export(&mut self, piece: &Piece) -> Answer<ExportedPiece> {
        if let Some(exported) = self.exports.get(&piece.address()) {
            return Ok(*exported);
        }
        let exported = self.pool.export(piece, Access::ReadWrite);
        let exported = exported.map_err(|error| {
            log::warn!("cannot export device memory: {error}");
            Code::OUT_OF_MEMORY
        })?;
        self.exports.insert(piece.address(), exported);
        Ok(exported)
    }

    /// Returns the chunk that contains an address.
    pub(super) fn chunk_at(&self, address: u64) -> Option<ChunkPlace> {
        self.pool.chunk_at(address)
    }

    /// Exports the chunk that contains an address to another GPU, for as long as it is the pool's.
    /// Returns `None` if no chunk contains it, or the device refuses.
    pub(super) fn export_to(&self, address: u64, gpu: u32) -> Option<ExportToken> {
        let exported = self.pool.export_chunk(address, Access::ReadWrite, 1 << gpu);
        exported.unwrap_or_else(|error| {
            log::warn!("cannot export device memory to GPU {gpu}: {error}");
            None
        })
    }

    /// Returns how many bytes the pool has of the device, and how many of them pieces use.
    pub(super) fn reserved_and_used_bytes(&self) -> (u64, u64) {
        (self.pool.reserved_bytes(), self.used_bytes)
    }
}

impl FutureStorage {
    /// Starts the thread that makes storage for the pool's records. It is made on a stack before it
    /// is moved, so the stack is that of a thread of its own. It takes milliseconds, in which the
    /// device is opened.
    pub(crate) fn start() -> Self {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        Self(thread.spawn(|| Box::new(Storage::new())))
    }

    fn wait(self) -> Answer<Box<Storage>> {
        match self.0.map(JoinHandle::join) {
            Ok(Ok(storage)) => Ok(storage),
            _ => Err(Code::OUT_OF_MEMORY),
        }
    }
}

fn give(pool: &mut Pool<'static, 'static>, piece: Piece) {
    if let Err(error) = pool.free(piece) {
        log::warn!("device memory is lost: {error}");
    }
}

fn refused(driver: &Driver, error: &PoolError) -> Code {
    log::debug!("cannot allocate device memory: {error}");
    match error {
        PoolError::Refused(refusal) if refusal.status() == Status::DeviceLost => {
            driver.fail(Code::DEVICE_UNAVAILABLE)
        }
        _ => Code::OUT_OF_MEMORY,
    }
}
