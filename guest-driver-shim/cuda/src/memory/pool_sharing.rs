//! Memory pools that processes share (CUDA driver API, "Stream Ordered Memory Allocator").
//!
//! The descriptor of a pool holds a random number that identifies it, and gives no right to its
//! memory. The data of an exported allocation holds the token of an export, so it is good for
//! processes that use the same server or VM, and until the allocation is freed. Both may come from
//! any process: all in them is checked.

use std::os::fd::IntoRawFd;

use causeway_shim_linux::shim::{Access, Allocation, ExportToken};

use super::pointer_data::{Identity, ImportedPiece, PointerData};
use super::pool_kinds::PoolKind;
use super::record_file;
use super::regions::{Backing, Region};
use super::stores::Sharing;
use crate::boundary::{In, Out};
use crate::driver::{Driver, call_unless_faulted};
use crate::error::{Answer, Code};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const POSIX: u32 = 1;
/// How the content of a pool's descriptor begins.
const MAGIC: &[u8; 8] = b"causewaP";
/// Magic, identity and kind.
const RECORD_BYTES: usize = 8 + 16 + 1;
/// Kinds of pools in a record.
const DEVICE: u8 = 1;
const HOST: u8 = 2;

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
    driver.memory.end_retired(driver);
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
}
