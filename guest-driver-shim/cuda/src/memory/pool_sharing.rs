//! Memory pools that processes share (CUDA driver API, "Stream Ordered Memory Allocator").
//!
//! The descriptor of a pool holds a random number that identifies it, and gives no right to its
//! memory. The data of an exported allocation holds the token of an export, so it is good for
//! processes that use the same server or VM, and until the allocation is freed. Both may come from
//! any process: all in them is checked.

use std::collections::VecDeque;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use causeway_protocol::registers::features;
use causeway_shim_linux::shim::{Access, Allocation, ExportToken};
use parking_lot::Mutex;
use zerocopy::FromBytes;

use super::pool_kinds::PoolKind;
use super::regions::{Backing, Region};
use super::stores::Store;
use super::{ALIGNMENT, record_file};
use crate::boundary::{In, Out};
use crate::driver::{Driver, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::rings::Marks;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const POSIX: u32 = 1;
/// How the content of a pool's descriptor begins.
const MAGIC: &[u8; 8] = b"causewaP";
/// Magic, identity and kind.
const RECORD_BYTES: usize = 8 + 16 + 1;
/// Kinds of pools in a record.
const DEVICE: u8 = 1;
const HOST: u8 = 2;

/// A random number that identifies a pool.
pub(super) type Identity = [u8; 16];

/// How a pool is shared.
#[derive(Clone)]
pub(super) enum Sharing {
    /// Not at all.
    Private,
    /// Other processes may import it, and allocations from it.
    Exported {
        identity: Identity,
        store: Arc<Store>,
    },
    /// It is one of another process.
    Imported { identity: Identity },
}

/// `CUmemPoolPtrExportData`, as this library fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub(crate) struct PointerData {
    token: [u8; 32],
    identity: Identity,
    /// Place of the allocation in the memory that is exported.
    offset: u64,
    bytes: u64,
}

const _: () = assert!(size_of::<PointerData>() == 64);

/// An allocation of another process.
pub(crate) struct ImportedPiece {
    pub(super) memory: Allocation<'static>,
    data: PointerData,
    /// Handle of the pool from which it was imported.
    pub(super) pool: usize,
}

/// Memory that the program has given up, each with the last submissions that may use it.
#[derive(Default)]
pub(crate) struct RetiredMemory(Mutex<VecDeque<(Marks, Allocation<'static>)>>);

impl Sharing {
    /// Prepares a pool for other processes.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` for managed memory, or if the host does not let processes share memory.
    pub(super) fn export(driver: &Driver, kind: PoolKind) -> Answer<Self> {
        if !driver.has(features::SHARING) {
            return Err(Code::NOT_SUPPORTED);
        }
        let store = driver.memory.stores.take(driver, kind)?;
        let identity = random()?;
        Ok(Self::Exported { identity, store })
    }

    /// Returns the store of a pool from which the program allocates; `None` if it is one of all
    /// pools that are not shared.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the pool is imported.
    pub(super) fn store(&self) -> Answer<Option<&Arc<Store>>> {
        match self {
            Self::Private => Ok(None),
            Self::Exported { store, .. } => Ok(Some(store)),
            Self::Imported { .. } => Err(Code::INVALID_VALUE),
        }
    }
}

fn random() -> Answer<Identity> {
    let mut bytes = Identity::default();
    // SAFETY: writes at most as many bytes as there are.
    let made = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(made) {
        Ok(made) if made == bytes.len() => Ok(bytes),
        _ => Err(Code::OPERATING_SYSTEM),
    }
}

impl PointerData {
    /// Refuses data of other pools, and numbers that do not agree with the memory's size in bytes.
    fn check(&self, identity: &Identity, memory_bytes: u64) -> Answer {
        let end = self.offset.checked_add(self.bytes);
        let is_inside = end.is_some_and(|end| end <= memory_bytes);
        let is_piece = self.bytes != 0 && self.offset.is_multiple_of(ALIGNMENT);
        let is_fine = self.identity == *identity && is_inside && is_piece;
        is_fine.then_some(()).ok_or(Code::INVALID_VALUE)
    }
}

impl RetiredMemory {
    /// Ends memory once the work that was submitted before has ended.
    pub(super) fn add(&self, driver: &Driver, freed: Allocation<'static>) {
        let marks = driver.rings.marks();
        driver.rings.ask(driver, &marks);
        self.0.lock().push_back((marks, freed));
        self.collect(driver);
    }

    /// Ends the memory whose work has ended.
    fn collect(&self, driver: &Driver) {
        let is_over =
            |(marks, _): &mut (Marks, Allocation<'static>)| driver.rings.are_reached(marks);
        let mut retired = self.0.lock();
        while let Some(over) = retired.pop_front_if(is_over) {
            drop(over);
        }
    }
}

/// Returns what the descriptor of a pool holds.
fn record(kind: PoolKind, identity: &Identity) -> Answer<[u8; RECORD_BYTES]> {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(MAGIC);
    record[8..24].copy_from_slice(identity);
    record[24] = match kind {
        PoolKind::Device => DEVICE,
        PoolKind::Host => HOST,
        PoolKind::Managed(_) => return Err(Code::NOT_SUPPORTED),
    };
    Ok(record)
}

/// Returns what [`record`] was made of; `None` if it is no record of this library.
fn described(record: &[u8; RECORD_BYTES]) -> Option<(PoolKind, Identity)> {
    let (magic, rest) = record.split_first_chunk::<8>()?;
    let (identity, rest) = rest.split_first_chunk::<16>()?;
    let kind = match rest {
        [DEVICE] => PoolKind::Device,
        [HOST] => PoolKind::Host,
        _ => return None,
    };
    (magic == MAGIC).then_some((kind, *identity))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolExportToShareableHandle(
    descriptor: Out<i32>,
    pool: usize,
    kind: u32,
    flags: u64,
) -> u32 {
    call_unless_faulted(|driver| {
        let (kind_of_pool, sharing) = driver.memory.pools.lock().sharing(pool)?;
        let Sharing::Exported { identity, .. } = sharing else {
            return Err(Code::INVALID_VALUE);
        };
        if descriptor.is_null() || kind != POSIX || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let record = record(kind_of_pool, &identity)?;
        let file = record_file::make(&record).map_err(|_| Code::OPERATING_SYSTEM)?;
        descriptor.set(file.into_raw_fd())
    })
}

/// The descriptor itself is the "pointer"; it stays the caller's.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolImportFromShareableHandle(
    pool: Out<usize>,
    descriptor: usize,
    kind: u32,
    flags: u64,
) -> u32 {
    call_unless_faulted(|driver| {
        if pool.is_null() || kind != POSIX || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let record = record_file::read(descriptor)?;
        let (kind, identity) = described(&record).ok_or(Code::INVALID_VALUE)?;
        let imported = Sharing::Imported { identity };
        pool.set(driver.memory.pools.lock().add_shared(kind, imported))
    })
}

/// Returns the data of an allocation that begins at an address. That of an imported one is what it
/// was imported by.
fn export_pointer(driver: &Driver, address: u64) -> Answer<PointerData> {
    let regions = driver.memory.regions.lock();
    let found = regions.find(address).filter(|(start, _)| *start == address);
    let (_, region) = found.ok_or(Code::INVALID_VALUE)?;
    match &region.backing {
        Backing::Stored(stored) => {
            let (_, sharing) = driver.memory.pools.lock().sharing(stored.pool)?;
            let Sharing::Exported { identity, .. } = sharing else {
                return Err(Code::INVALID_VALUE);
            };
            let exported = stored.export()?;
            Ok(PointerData {
                token: exported.token.0,
                identity,
                offset: exported.offset,
                bytes: region.bytes,
            })
        }
        Backing::ImportedPiece(imported) => Ok(imported.data),
        _ => Err(Code::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolExportPointer(data: Out<PointerData>, address: u64) -> u32 {
    call_unless_faulted(|driver| {
        if data.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        data.set(export_pointer(driver, address)?)
    })
}

/// Maps memory of a kind for the GPU, and for the CPU if it is the host's. Returns both addresses.
fn map(driver: &Driver, memory: &Allocation<'static>, kind: PoolKind) -> Answer<[Option<u64>; 2]> {
    let bytes = memory.bytes();
    if kind == PoolKind::Device {
        let mapping = memory.map_gpu(driver.space, 0, bytes, Access::ReadWrite);
        let mapping = mapping.map_err(|error| {
            log::debug!("cannot map memory of another process: {error}");
            Code::OUT_OF_MEMORY
        })?;
        return Ok([Some(mapping.address()), None]);
    }
    let (host, gpu) = driver.memory.host.lock().map_for_both(memory, bytes)?;
    match host == gpu {
        true => Ok([Some(gpu), Some(host)]),
        false => Err(Code::NOT_SUPPORTED),
    }
}

fn import_pointer(driver: &Driver, pool: usize, data: PointerData) -> Answer<u64> {
    driver.memory.retired.collect(driver);
    let (kind, sharing) = driver.memory.pools.lock().sharing(pool)?;
    let Sharing::Imported { identity } = sharing else {
        return Err(Code::INVALID_VALUE);
    };
    data.check(&identity, u64::MAX)?;
    let imported = driver
        .device
        .import(&ExportToken(data.token), Access::ReadWrite);
    let memory = imported.map_err(|error| {
        log::debug!("cannot import memory of another process: {error}");
        match error.status().is_shortage() {
            true => Code::OUT_OF_MEMORY,
            false => Code::INVALID_VALUE,
        }
    })?;
    data.check(&identity, memory.bytes())?;
    let [gpu, host] = map(driver, &memory, kind)?.map(|at| at.map(|at| at + data.offset));
    let region = Region {
        bytes: data.bytes,
        gpu,
        host,
        context: 0,
        flags: 0,
        backing: Backing::ImportedPiece(ImportedPiece { memory, data, pool }),
    };
    Ok(driver.memory.regions.lock().insert(region))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolImportPointer(address: Out<u64>, pool: usize, data: In<PointerData>) -> u32 {
    // Programs import before they make a context current, as NVIDIA's library allows.
    call_unless_faulted(|driver| {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        address.set(import_pointer(driver, pool, data.get()?)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = [9; 16];

    #[test]
    fn forged_data_of_an_allocation_is_refused() {
        let good = PointerData {
            token: [1; 32],
            identity: IDENTITY,
            offset: 4096,
            bytes: 4096,
        };
        let check = |data: PointerData| data.check(&IDENTITY, 8192);
        assert_eq!(check(good), Ok(()));
        let (bytes, offset, identity) = (4097, u64::MAX - 255, [8; 16]);
        for forged in [
            PointerData { bytes, ..good },
            PointerData { bytes: 0, ..good },
            PointerData { offset, ..good },
            PointerData { offset: 1, ..good },
            PointerData { identity, ..good },
        ] {
            assert_eq!(check(forged), Err(Code::INVALID_VALUE), "{forged:?}");
        }
    }

    #[test]
    fn a_record_says_which_pool_it_is_and_of_what_kind() {
        for kind in [PoolKind::Device, PoolKind::Host] {
            let made = record(kind, &IDENTITY).unwrap();
            assert_eq!(described(&made), Some((kind, IDENTITY)));
            for (at, byte) in [(0, b'x'), (24, 0), (24, 3)] {
                let mut forged = made;
                forged[at] = byte;
                assert_eq!(described(&forged), None, "{at}");
            }
        }
        let managed = record(PoolKind::Managed(1), &IDENTITY);
        assert_eq!(managed, Err(Code::NOT_SUPPORTED));
    }

    #[test]
    fn pools_have_different_identities() {
        assert_ne!(random(), random());
    }
}
