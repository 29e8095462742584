//! Physical memory (CUDA driver API, "Virtual Memory Management"): handles, and descriptors by
//! which other processes import it.

use std::collections::BTreeMap;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use causeway_shim_linux::shim::{Access, Allocation, ExportToken, MemoryKind};

use super::record_file;
use super::reservations::{GRANULARITY, check_multiples};
use crate::boundary::{In, Out};
use crate::driver::{Driver, call_of, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::structures::{AllocationProperties, Location};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const POSIX: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
const DEVICE: i32 = 1;
/// How the content of an exported descriptor begins.
const MAGIC: &[u8; 8] = b"causewaM";
/// Magic, token and size in bytes.
const EXPORT_BYTES: usize = 8 + 32 + 8;

/// Physical memory of `cuMemCreate`.
pub(crate) struct Physical {
    pub(super) memory: Allocation<'static>,
    pub(super) bytes: u64,
    handle_types: u32,
    flags: [u8; 8],
    /// Another process created it, so it cannot be exported again.
    is_imported: bool,
}

/// Physical memory by its handles, with how often each is to be released.
#[derive(Default)]
pub(crate) struct Physicals(BTreeMap<u64, (u64, Arc<Physical>)>);

impl Physicals {
    fn add(&mut self, driver: &Driver, physical: Physical) -> u64 {
        let handle = driver.fresh_handle() as u64;
        self.0.insert(handle, (1, Arc::new(physical)));
        handle
    }

    pub(super) fn get(&self, handle: u64) -> Answer<Arc<Physical>> {
        let found = self
            .0
            .get(&handle)
            .map(|(_, physical)| Arc::clone(physical));
        found.ok_or(Code::INVALID_VALUE)
    }

    /// Counts one more owner of memory whose handle may have been released.
    pub(super) fn retain(&mut self, handle: u64, physical: &Arc<Physical>) {
        let entry = self.0.entry(handle);
        entry.or_insert_with(|| (0, Arc::clone(physical))).0 += 1;
    }

    /// Counts one owner less. Returns the memory if that was the last one.
    fn release(&mut self, handle: u64) -> Answer<Option<Arc<Physical>>> {
        let (owners, _) = self.0.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
        *owners -= 1;
        match owners {
            0 => Ok(self.0.remove(&handle).map(|(_, physical)| physical)),
            _ => Ok(None),
        }
    }
}

/// Checks what memory is asked to be. Returns the driver of the device that is to have it.
fn check(given: &AllocationProperties) -> Answer<&'static Driver> {
    // Pinned memory (1) is the one kind; Windows handles and reserved bytes are not for Linux.
    let is_wrong = given.kind != 1 || given.flags[4..] != [0; 4];
    if is_wrong || given.flags[0] > 1 || given.flags[1] > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let driver = match given.location {
        Location { kind: DEVICE, id } => Driver::of_device(id)?,
        Location { kind: 2..=4, .. } => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_VALUE),
    };
    match given.handle_types {
        0 | POSIX => Ok(driver),
        8 => Err(Code::NOT_PERMITTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationGranularity(
    bytes: Out<usize>,
    given: In<AllocationProperties>,
    option: u32,
) -> u32 {
    call_unless_faulted(|_| {
        check(&given.get()?)?;
        match option {
            0 | 1 => bytes.set(GRANULARITY as usize),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemCreate(
    handle: Out<u64>,
    bytes: usize,
    given: In<AllocationProperties>,
    flags: u64,
) -> u32 {
    call_unless_faulted(|_| {
        let given = given.get()?;
        let driver = check(&given)?;
        driver.check_sticky()?;
        check_multiples(&[bytes as u64])?;
        if handle.is_null() || bytes == 0 || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let memory = driver.device.allocate(bytes as u64, MemoryKind::Device);
        let memory = memory.map_err(|error| {
            log::debug!("cannot create physical memory: {error}");
            Code::OUT_OF_MEMORY
        })?;
        let physical = Physical {
            memory,
            bytes: bytes as u64,
            handle_types: given.handle_types,
            flags: given.flags,
            is_imported: false,
        };
        handle.set(driver.memory.regions.lock().physicals.add(driver, physical))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> u32 {
    call_of(handle as usize, |driver| {
        let released = driver.memory.regions.lock().physicals.release(handle)?;
        // Mappings keep it. Without one, no work reaches it.
        drop(released);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationPropertiesFromHandle(
    into: Out<AllocationProperties>,
    handle: u64,
) -> u32 {
    call_of(handle as usize, |driver| {
        let physical = driver.memory.regions.lock().physicals.get(handle)?;
        into.set(AllocationProperties {
            kind: 1,
            handle_types: physical.handle_types,
            location: Location {
                kind: DEVICE,
                id: driver.ordinal as i32,
            },
            windows: 0,
            flags: physical.flags,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemExportToShareableHandle(
    descriptor: Out<i32>,
    handle: u64,
    kind: u32,
    flags: u64,
) -> u32 {
    call_of(handle as usize, |driver| {
        let physical = driver.memory.regions.lock().physicals.get(handle)?;
        let asked = physical.handle_types & POSIX != 0;
        if descriptor.is_null() || kind != POSIX || flags != 0 || !asked || physical.is_imported {
            return Err(Code::INVALID_VALUE);
        }
        let token = physical.memory.export(Access::ReadWrite).map_err(|error| {
            log::debug!("cannot export physical memory: {error}");
            Code::OUT_OF_MEMORY
        })?;
        let record = record(&token, physical.bytes);
        let file = record_file::make(&record).map_err(|_| Code::OPERATING_SYSTEM)?;
        descriptor.set(file.into_raw_fd())
    })
}

/// Returns what the descriptor of exported memory holds.
fn record(token: &ExportToken, bytes: u64) -> [u8; EXPORT_BYTES] {
    let mut record = [0; EXPORT_BYTES];
    record[..8].copy_from_slice(MAGIC);
    record[8..40].copy_from_slice(&token.0);
    record[40..].copy_from_slice(&bytes.to_le_bytes());
    record
}

/// Returns what [`record`] was made of; `None` if it is no record of this library.
fn exported(record: &[u8; EXPORT_BYTES]) -> Option<(ExportToken, u64)> {
    let (magic, rest) = record.split_first_chunk::<8>()?;
    let (token, rest) = rest.split_first_chunk::<32>()?;
    let bytes = u64::from_le_bytes(rest.try_into().ok()?);
    (magic == MAGIC).then_some((ExportToken(*token), bytes))
}

/// The descriptor itself is the "pointer"; it stays the caller's.
#[unsafe(no_mangle)]
extern "C" fn cuMemImportFromShareableHandle(
    handle: Out<u64>,
    descriptor: usize,
    kind: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        if handle.is_null() || kind != POSIX {
            return Err(Code::INVALID_VALUE);
        }
        let record = record_file::read(descriptor)?;
        let (token, bytes) = exported(&record).ok_or(Code::INVALID_VALUE)?;
        let memory = driver.device.import(&token, Access::ReadWrite);
        let memory = memory.map_err(|error| {
            log::debug!("cannot import physical memory: {error}");
            Code::INVALID_VALUE
        })?;
        if memory.bytes() < bytes || !bytes.is_multiple_of(GRANULARITY) {
            return Err(Code::INVALID_VALUE);
        }
        let physical = Physical {
            memory,
            bytes,
            handle_types: POSIX,
            flags: [0; 8],
            is_imported: true,
        };
        handle.set(driver.memory.regions.lock().physicals.add(driver, physical))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_of_this_library_are_imported() {
        let token = ExportToken([7; 32]);
        let mut made = record(&token, GRANULARITY);
        assert_eq!(exported(&made), Some((token, GRANULARITY)));
        made[0] = b'x';
        assert_eq!(exported(&made), None);
    }
}
