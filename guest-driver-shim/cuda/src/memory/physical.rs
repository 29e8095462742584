//! Physical memory (CUDA driver API, "Virtual Memory Management"): handles, and descriptors by
//! which other processes import it.

use std::collections::BTreeMap;
use std::os::fd::IntoRawFd;
use std::sync::{Arc, OnceLock};

use causeway_protocol::registers::features;
use causeway_shim_linux::shim::{
    Access, Allocation, ExportToken, FabricHandle, MemoryKind, Refusal, Status,
};

use super::record_file;
use super::reservations::{GRANULARITY, check_multiples};
use crate::boundary::{In, Out};
use crate::driver::{Driver, call_of, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::structures::{AllocationProperties, Location};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const POSIX: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`
const FABRIC: u32 = 8;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
const DEVICE: i32 = 1;
/// How the content of an exported descriptor begins.
const MAGIC: &[u8; 8] = b"causewaM";
/// Magic, token and size in bytes.
const EXPORT_BYTES: usize = 8 + 32 + 8;

/// Physical memory of `cuMemCreate`.
pub(crate) struct Physical {
    /// The memory and its size in bytes. Of a fabric handle, neither is known before the first
    /// mapping: the handle does not tell the size, and the device wants to know it for its quotas.
    memory: OnceLock<(Allocation<'static>, u64)>,
    handle_types: u32,
    flags: [u8; 8],
    origin: Origin,
}

/// Who created memory. What another process created cannot be exported again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Own,
    Descriptor,
    Fabric(FabricHandle),
}

impl Physical {
    /// Returns the memory; fails if it has a fabric handle and was never mapped.
    pub(super) fn memory(&self) -> Answer<&Allocation<'static>> {
        let known = self.memory.get().map(|(memory, _)| memory);
        known.ok_or(Code::INVALID_VALUE)
    }

    /// Returns the size of the memory, of which `bytes` bytes are about to be mapped. Memory of a
    /// fabric handle is imported if this is its first mapping, which must be of all of it.
    pub(super) fn bytes_to_map(&self, driver: &'static Driver, bytes: u64) -> Answer<u64> {
        if let (None, Origin::Fabric(handle)) = (self.memory.get(), &self.origin) {
            let memory = driver.device.import_fabric(handle, bytes);
            let memory = memory.map_err(|error| fabric_refusal(error.refusal))?;
            // Another thread may have been faster: then this import ends.
            let _ = self.memory.set((memory, bytes));
        }
        let known = self.memory.get().map(|(_, bytes)| *bytes);
        known.ok_or(Code::INVALID_VALUE)
    }

    /// Returns the memory for another device, `peer`, which has or gets rights to it.
    pub(super) fn for_peer(&self, peer: &'static Driver) -> Answer<Allocation<'static>> {
        let (memory, bytes) = self.memory.get().ok_or(Code::INVALID_VALUE)?;
        let refused = |error: &dyn std::fmt::Display| {
            log::debug!(
                "cannot share physical memory with device {}: {error}",
                peer.ordinal
            );
            Code::INVALID_VALUE
        };
        if let Origin::Fabric(handle) = &self.origin {
            // Its owner has given it to all devices, and this one cannot pass it on.
            let imported = peer.device.import_fabric(handle, *bytes);
            return imported.map_err(|error| fabric_refusal(error.refusal));
        }
        // Rights may grow later.
        let token = memory.export_to(Access::ReadWrite, 1 << peer.gpus.gpu);
        let token = token.map_err(|error| refused(&error))?;
        let memory = peer.device.import(&token, Access::ReadWrite);
        memory.map_err(|error| refused(&error))
    }

    fn is_own(&self) -> bool {
        self.origin == Origin::Own
    }
}

/// Returns what a driver answers where the device refuses a fabric handle.
fn fabric_refusal(refusal: Refusal) -> Code {
    log::debug!("the device refuses a fabric handle: {refusal}");
    match refusal.status {
        Status::Unsupported | Status::AccessDenied => Code::NOT_PERMITTED,
        status if status.is_shortage() => Code::OUT_OF_MEMORY,
        _ => Code::INVALID_VALUE,
    }
}

/// Refuses fabric handles where the device does not have the feature, as a driver does without an
/// IMEX channel.
fn check_fabric(driver: &Driver, feature: u64) -> Answer {
    match driver.device.features() & feature {
        0 => {
            log::debug!("--gpu of the host does not allow this use of fabric handles");
            Err(Code::NOT_PERMITTED)
        }
        _ => Ok(()),
    }
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
        types if types & !(POSIX | FABRIC) == 0 => {
            check_fabric(driver, features::FABRIC_EXPORT)?;
            Ok(driver)
        }
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
        let bytes = bytes as u64;
        let memory = match given.handle_types & FABRIC {
            0 => driver.device.allocate(bytes, MemoryKind::Device),
            _ => driver.device.allocate_for_fabric(bytes),
        };
        let memory = memory.map_err(|error| {
            log::debug!("cannot create physical memory: {error}");
            Code::OUT_OF_MEMORY
        })?;
        let physical = Physical {
            memory: (memory, bytes).into(),
            handle_types: given.handle_types,
            flags: given.flags,
            origin: Origin::Own,
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

/// Stores a file descriptor, or the 64 bytes of a fabric handle, at the address in `descriptor`.
#[unsafe(no_mangle)]
extern "C" fn cuMemExportToShareableHandle(
    descriptor: Out<i32>,
    handle: u64,
    kind: u32,
    flags: u64,
) -> u32 {
    call_of(handle as usize, |driver| {
        let physical = driver.memory.regions.lock().physicals.get(handle)?;
        let asked = physical.handle_types & kind != 0;
        if descriptor.is_null() || flags != 0 || !asked || !physical.is_own() {
            return Err(Code::INVALID_VALUE);
        }
        let memory = physical.memory()?;
        if kind == FABRIC {
            let handle = memory.fabric_handle();
            let handle = handle.map_err(|error| fabric_refusal(error.refusal))?;
            return Out::at(descriptor.address_of(0)?).set(handle.0);
        }
        if kind != POSIX {
            return Err(Code::INVALID_VALUE);
        }
        let token = memory.export(Access::ReadWrite).map_err(|error| {
            log::debug!("cannot export physical memory: {error}");
            Code::OUT_OF_MEMORY
        })?;
        let record = record(&token, physical.bytes_to_map(driver, 0)?);
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

/// A descriptor is the "pointer" itself; it stays the caller's. Of memory by a fabric handle, the
/// size is known with its first mapping: until then, the owner can free it.
#[unsafe(no_mangle)]
extern "C" fn cuMemImportFromShareableHandle(
    handle: Out<u64>,
    descriptor: usize,
    kind: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        if handle.is_null() || !matches!(kind, POSIX | FABRIC) {
            return Err(Code::INVALID_VALUE);
        }
        if kind == FABRIC {
            let physical = of_fabric(driver, In::at(descriptor))?;
            return handle.set(driver.memory.regions.lock().physicals.add(driver, physical));
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
            memory: (memory, bytes).into(),
            handle_types: POSIX,
            flags: [0; 8],
            origin: Origin::Descriptor,
        };
        handle.set(driver.memory.regions.lock().physicals.add(driver, physical))
    })
}

/// Returns memory that a fabric handle names, if the device finds it.
fn of_fabric(driver: &Driver, handle: In<[u8; 64]>) -> Answer<Physical> {
    check_fabric(driver, features::FABRIC_IMPORT)?;
    let handle = FabricHandle(handle.get()?);
    let found = driver.device.find_fabric(&handle);
    found.map_err(|error| fabric_refusal(error.refusal))?;
    Ok(Physical {
        memory: OnceLock::new(),
        handle_types: FABRIC,
        flags: [0; 8],
        origin: Origin::Fabric(handle),
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
