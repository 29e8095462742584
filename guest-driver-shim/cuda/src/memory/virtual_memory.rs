//! Virtual memory (CUDA driver API, "Virtual Memory Management").

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use causeway_shim_linux::shim::{Access, Allocation, ExportToken, GpuMapping, MemoryKind};

use super::regions::{Backing, Region, Regions};
use super::reservations::{self, GRANULARITY};
use crate::boundary::{In, Out};
use crate::driver::{Driver, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::handles;
use crate::structures::{AccessDescription, AllocationProperties, Location};

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
    memory: Allocation<'static>,
    bytes: u64,
    handle_types: u32,
    flags: [u8; 8],
    /// Another process created it, so it cannot be exported again.
    is_imported: bool,
}

/// Physical memory by its handles, with how often each is to be released.
#[derive(Default)]
pub(crate) struct Physicals(BTreeMap<u64, (u64, Arc<Physical>)>);

impl Physicals {
    fn add(&mut self, physical: Physical) -> u64 {
        let handle = handles::fresh() as u64;
        self.0.insert(handle, (1, Arc::new(physical)));
        handle
    }

    fn get(&self, handle: u64) -> Answer<Arc<Physical>> {
        let found = self
            .0
            .get(&handle)
            .map(|(_, physical)| Arc::clone(physical));
        found.ok_or(Code::INVALID_VALUE)
    }

    /// Counts one more owner of memory whose handle may have been released.
    fn retain(&mut self, handle: u64, physical: &Arc<Physical>) {
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

/// A mapping of physical memory, which the GPU reaches once it has rights.
pub(crate) struct Mapped {
    physical: Arc<Physical>,
    handle: u64,
    access: Access,
    mapping: Option<GpuMapping<'static>>,
}

impl Mapped {
    /// Gives the GPU rights to the mapping at `start`, or takes them.
    fn set_access(&mut self, driver: &Driver, start: u64, bytes: u64, access: Access) -> Answer {
        let refused = |error: &dyn std::fmt::Display| {
            log::debug!("cannot change access to {start:#x}: {error}");
            Code::INVALID_VALUE
        };
        match (self.mapping, access) {
            (None, Access::None) => {}
            (None, access) => {
                let memory = &self.physical.memory;
                let mapping = driver.space.map_at(memory, 0, bytes, access, start);
                self.mapping = Some(mapping.map_err(|error| refused(&error))?);
            }
            (Some(mapping), Access::None) => {
                mapping.unmap().map_err(|error| refused(&error))?;
                self.mapping = None;
            }
            (Some(mapping), access) => {
                mapping
                    .set_access(access)
                    .map_err(|error| refused(&error))?;
            }
        }
        self.access = access;
        Ok(())
    }
}

/// Checks what memory is asked to be.
fn check(driver: &Driver, given: &AllocationProperties) -> Answer {
    // Pinned memory (1) is the one kind; Windows handles and reserved bytes are not for Linux.
    let is_wrong = given.kind != 1 || given.flags[4..] != [0; 4];
    if is_wrong || given.flags[0] > 1 || given.flags[1] > 1 {
        return Err(Code::INVALID_VALUE);
    }
    match given.location {
        Location { kind: DEVICE, id } => driver.device_of(id)?,
        Location { kind: 2..=4, .. } => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_VALUE),
    };
    match given.handle_types {
        0 | POSIX => Ok(()),
        8 => Err(Code::NOT_PERMITTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn check_multiples(values: &[u64]) -> Answer {
    let is_fine = values.iter().all(|value| value.is_multiple_of(GRANULARITY));
    is_fine.then_some(()).ok_or(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationGranularity(
    bytes: Out<usize>,
    given: In<AllocationProperties>,
    option: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        check(driver, &given.get()?)?;
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
    call_unless_faulted(|driver| {
        let given = given.get()?;
        check(driver, &given)?;
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
        handle.set(driver.memory.regions.lock().physicals.add(physical))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> u32 {
    call_unless_faulted(|driver| {
        let released = driver.memory.regions.lock().physicals.release(handle)?;
        // Mappings keep it. Without one, no work reaches it.
        drop(released);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRetainAllocationHandle(into: Out<u64>, address: u64) -> u32 {
    call_unless_faulted(|driver| {
        let mut regions = driver.memory.regions.lock();
        let found = regions.find(address).map(|(_, region)| region);
        let Some(Region {
            backing: Backing::Mapped(mapped),
            ..
        }) = found
        else {
            return Err(Code::INVALID_VALUE);
        };
        let (handle, physical) = (mapped.handle, Arc::clone(&mapped.physical));
        into.set(handle)?;
        regions.physicals.retain(handle, &physical);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationPropertiesFromHandle(
    into: Out<AllocationProperties>,
    handle: u64,
) -> u32 {
    call_unless_faulted(|driver| {
        let physical = driver.memory.regions.lock().physicals.get(handle)?;
        into.set(AllocationProperties {
            kind: 1,
            handle_types: physical.handle_types,
            location: Location {
                kind: DEVICE,
                id: 0,
            },
            windows: 0,
            flags: physical.flags,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressReserve(
    address: Out<u64>,
    bytes: usize,
    alignment: usize,
    hint: u64,
    flags: u64,
) -> u32 {
    call_unless_faulted(|driver| {
        let (bytes, alignment) = (bytes as u64, alignment as u64);
        check_multiples(&[bytes])?;
        let is_aligned = alignment == 0 || alignment.is_power_of_two();
        if address.is_null() || bytes == 0 || !is_aligned || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let alignment = alignment.max(GRANULARITY);
        let attributes = &driver.attributes;
        let start = reservations::reserve_addresses(attributes, bytes, alignment, hint)?;
        driver.memory.regions.lock().reserved.insert(start, bytes);
        address.set(start)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> u32 {
    call_unless_faulted(|driver| {
        let mut regions = driver.memory.regions.lock();
        let bytes = bytes as u64;
        let is_whole = regions.reserved.get(&address) == Some(&bytes);
        if !is_whole || regions.overlaps(address, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        regions.reserved.remove(&address);
        reservations::release(address, bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> u32 {
    call_unless_faulted(|driver| {
        let bytes = bytes as u64;
        check_multiples(&[address, bytes])?;
        // An offset other than 0 is for a later version of the API.
        if bytes == 0 || offset != 0 || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut regions = driver.memory.regions.lock();
        let physical = regions.physicals.get(handle)?;
        let (start, reserved) = regions.reservation(address).ok_or(Code::INVALID_VALUE)?;
        let is_inside = bytes <= reserved - (address - start);
        if bytes > physical.bytes || !is_inside || regions.overlaps(address, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        regions.insert_mapping(
            address,
            bytes,
            Mapped {
                physical,
                handle,
                access: Access::None,
                mapping: None,
            },
        );
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> u32 {
    call_unless_faulted(|driver| {
        driver.ring.drain(driver)?;
        let mut regions = driver.memory.regions.lock();
        let starts = regions.whole_mappings(address, bytes as u64)?;
        let mut ended = Vec::new();
        for start in starts {
            let (bytes, mapped) = mapping_at(&mut regions, start)?;
            mapped.set_access(driver, start, bytes, Access::None)?;
            ended.push(regions.take(start, |_| true));
        }
        drop(regions);
        // The last mapping of memory whose handle is released frees it: after the lock.
        drop(ended);
        Ok(())
    })
}

fn mapping_at(regions: &mut Regions, start: u64) -> Answer<(u64, &mut Mapped)> {
    match regions.find_mut(start) {
        Some((
            _,
            Region {
                bytes,
                backing: Backing::Mapped(mapped),
                ..
            },
        )) => Ok((*bytes, mapped)),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn rights(flags: i32) -> Answer<Access> {
    match flags {
        0 => Ok(Access::None),
        1 => Ok(Access::Read),
        3 => Ok(Access::ReadWrite),
        _ => Err(Code::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemSetAccess(
    address: u64,
    bytes: usize,
    descriptions: In<AccessDescription>,
    count: usize,
) -> u32 {
    call_unless_faulted(|driver| {
        if count != 1 {
            // There is one device.
            return Err(Code::INVALID_VALUE);
        }
        let AccessDescription { location, flags } = descriptions.get()?;
        let access = rights(flags)?;
        match location {
            Location { kind: DEVICE, id } => driver.device_of(id)?,
            Location { kind: 2..=4, .. } => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        };
        if access != Access::ReadWrite {
            // Work that was submitted may use the rights that go.
            driver.ring.drain(driver)?;
        }
        let mut regions = driver.memory.regions.lock();
        for start in regions.whole_mappings(address, bytes as u64)? {
            let (bytes, mapped) = mapping_at(&mut regions, start)?;
            mapped.set_access(driver, start, bytes, access)?;
            let gpu = (access != Access::None).then_some(start);
            if let Some((_, region)) = regions.find_mut(start) {
                region.gpu = gpu;
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) -> u32 {
    call_unless_faulted(|driver| {
        let location = location.get()?;
        if location.kind != DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        driver.device_of(location.id)?;
        let regions = driver.memory.regions.lock();
        let found = regions.find(address).map(|(_, region)| &region.backing);
        match found {
            Some(Backing::Mapped(mapped)) => flags.set(match mapped.access {
                Access::None => 0,
                Access::Read => 1,
                Access::ReadWrite => 3,
            }),
            Some(Backing::Alias { .. }) | None => Err(Code::INVALID_VALUE),
            Some(_) => flags.set(3),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemExportToShareableHandle(
    descriptor: Out<i32>,
    handle: u64,
    kind: u32,
    flags: u64,
) -> u32 {
    call_unless_faulted(|driver| {
        let physical = driver.memory.regions.lock().physicals.get(handle)?;
        let asked = physical.handle_types & POSIX != 0;
        if descriptor.is_null() || kind != POSIX || flags != 0 || !asked || physical.is_imported {
            return Err(Code::INVALID_VALUE);
        }
        let token = physical.memory.export(Access::ReadWrite).map_err(|error| {
            log::debug!("cannot export physical memory: {error}");
            Code::OUT_OF_MEMORY
        })?;
        let file = export_file(&token, physical.bytes).map_err(|_| Code::OPERATING_SYSTEM)?;
        descriptor.set(file.into_raw_fd())
    })
}

/// Makes a memory file that says how to import memory: whoever has it may.
fn export_file(token: &ExportToken, bytes: u64) -> io::Result<File> {
    // SAFETY: the name ends in NUL.
    let descriptor = unsafe { libc::memfd_create(c"causeway-memory".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh from the kernel, owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(MAGIC)?;
    file.write_all(&token.0)?;
    file.write_all(&bytes.to_le_bytes())?;
    Ok(file)
}

/// Reads what [`export_file`] has written; `None` if the file is none of this library's.
fn exported(file: &File) -> Option<(ExportToken, u64)> {
    let mut content = [0; EXPORT_BYTES];
    file.read_exact_at(&mut content, 0).ok()?;
    let (magic, rest) = content.split_first_chunk::<8>()?;
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
        let descriptor = i32::try_from(descriptor).map_err(|_| Code::INVALID_VALUE)?;
        if handle.is_null() || kind != POSIX || descriptor < 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: only read from, which fails if it is no descriptor, and never closed.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        let (token, bytes) = exported(&file).ok_or(Code::INVALID_VALUE)?;
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
        handle.set(driver.memory.regions.lock().physicals.add(physical))
    })
}

/// There is no dma-buf of this memory.
#[unsafe(no_mangle)]
extern "C" fn cuMemGetHandleForAddressRange(
    _handle: Out<i32>,
    _address: u64,
    _bytes: usize,
    _kind: u32,
    _flags: u64,
) -> u32 {
    call_unless_faulted(|_| Err(Code::NOT_SUPPORTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_this_library_are_imported() {
        let token = ExportToken([7; 32]);
        let file = export_file(&token, GRANULARITY).unwrap();
        assert_eq!(exported(&file), Some((token, GRANULARITY)));
        file.write_all_at(b"x", 0).unwrap();
        assert_eq!(exported(&file), None);
        file.set_len(3).unwrap();
        assert_eq!(exported(&file), None);
    }

    #[test]
    fn rights_are_none_reading_or_both() {
        assert_eq!(rights(3), Ok(Access::ReadWrite));
        assert_eq!(rights(2), Err(Code::INVALID_VALUE));
        assert_eq!(rights(-1), Err(Code::INVALID_VALUE));
    }
}
