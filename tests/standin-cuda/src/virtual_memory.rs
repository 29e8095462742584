//! Virtual memory (CUDA driver API, "Virtual Memory Management"), with every refusal that is
//! documented there.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_mediator::backend::Memory;
use causeway_protocol::Access;

use crate::addresses::GRANULARITY;
use crate::attributes;
use crate::boundary::{In, Out};
use crate::driver::{Driver, State, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::physical::{Physical, Place, Properties};
use crate::structures::{AccessDescription, AllocationProperties, Location};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const POSIX: u32 = 1;
/// How long kernels may go on that do not use unmapped memory.
const KERNELS_END: Duration = Duration::from_millis(20);
/// `CU_MEM_HANDLE_TYPE_FABRIC`
const FABRIC: u32 = 8;

/// What an allocation is asked to be.
fn properties(driver: &Driver, given: AllocationProperties) -> Answer<Properties> {
    let AllocationProperties {
        kind,
        handle_types,
        location,
        ..
    } = given;
    // Pinned memory is the one kind; Windows handles, reserved bytes and usage bits are not for
    // this driver.
    if kind != 1 || handle_types & !(POSIX | FABRIC) != 0 || given.flags[2..] != [0; 6] {
        return Err(Code::INVALID_VALUE);
    }
    if given.flags[0] > 1 || given.flags[1] > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let place = match location {
        Location { kind: 1, id } => Place::Device(driver.device(id)?),
        Location { kind: 3, id } if id >= 0 => Place::HostNuma(id),
        Location { kind: 2 | 4, .. } => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_VALUE),
    };
    Ok(Properties {
        place,
        handle_types,
        flags: u64::from_le_bytes(given.flags),
    })
}

fn rights(flags: i32) -> Answer<Access> {
    match flags {
        0 => Ok(Access::None),
        1 => Ok(Access::Read),
        3 => Ok(Access::ReadWrite),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn check_multiple(values: &[u64]) -> Answer {
    let is_fine = values.iter().all(|value| value.is_multiple_of(GRANULARITY));
    if is_fine {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

fn find(state: &State, handle: u64) -> Answer<Arc<Physical>> {
    let handle = usize::try_from(handle).map_err(|_| Code::INVALID_VALUE)?;
    state.physical.get(handle).ok_or(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationGranularity(
    bytes: Out<usize>,
    given: In<AllocationProperties>,
    option: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        properties(driver, given.get()?)?;
        if option > 1 {
            return Err(Code::INVALID_VALUE);
        }
        bytes.set(GRANULARITY as usize)
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
        driver.supports(attributes::VIRTUAL_MEMORY)?;
        let properties = properties(driver, given.get()?)?;
        let bytes = bytes as u64;
        check_multiple(&[bytes])?;
        if handle.is_null() || bytes == 0 || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let is_for_fabric = properties.handle_types & FABRIC != 0;
        if is_for_fabric {
            check_fabric(driver)?;
        }
        if properties.handle_types & POSIX != 0 {
            driver.supports(attributes::POSIX_HANDLES)?;
        }
        let charge = match properties.place {
            Place::Device(device) => Some(driver.charge(device, bytes)?),
            Place::HostNuma(_) => None,
        };
        let header = driver.settings.vulkan;
        let folder = &driver.settings.state;
        let made = match is_for_fabric {
            true => Physical::create_for_fabric(folder, bytes, properties, header, charge),
            false => Physical::create(bytes, properties, header, charge),
        };
        let made = Arc::new(made.map_err(|_| Code::OUT_OF_MEMORY)?);
        handle.set(driver.state().physical.insert(made) as u64)
    })
}

/// Without an IMEX channel, the attribute says yes and calls say no, as on the machine that this
/// was seen on.
fn check_fabric(driver: &Driver) -> Answer {
    driver.supports(attributes::FABRIC_HANDLES)?;
    match driver.settings.fabric {
        true => Ok(()),
        false => Err(Code::NOT_PERMITTED),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> u32 {
    call_unless_faulted(|driver| {
        let mut state = driver.state();
        let physical = find(&state, handle)?;
        if physical.references.fetch_sub(1, Ordering::Relaxed) == 1 {
            state.physical.remove(handle as usize);
        }
        drop(state);
        Ok(())
    })
}

/// The handle of the memory at an address, which is then to be released once more.
#[unsafe(no_mangle)]
extern "C" fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) -> u32 {
    call_unless_faulted(|driver| {
        let mut state = driver.state();
        let (_, mapped) = state
            .addresses
            .mapping(address)
            .ok_or(Code::INVALID_VALUE)?;
        let (number, physical) = (mapped.handle, Arc::clone(&mapped.physical));
        if number == 0 || handle.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        physical.references.fetch_add(1, Ordering::Relaxed);
        state.physical.put(number, physical);
        handle.set(number as u64)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationPropertiesFromHandle(
    into: Out<AllocationProperties>,
    handle: u64,
) -> u32 {
    call_unless_faulted(|driver| {
        let properties = find(&driver.state(), handle)?.properties;
        let location = match properties.place {
            Place::Device(device) => Location {
                kind: 1,
                id: device as i32,
            },
            Place::HostNuma(id) => Location { kind: 3, id },
        };
        into.set(AllocationProperties {
            kind: 1,
            handle_types: properties.handle_types,
            location,
            windows: 0,
            flags: properties.flags.to_le_bytes(),
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
        check_multiple(&[bytes])?;
        let aligned = alignment == 0 || alignment.is_power_of_two();
        if address.is_null() || bytes == 0 || !aligned || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let start = driver.state().addresses.reserve(bytes, alignment, hint)?;
        address.set(start)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> u32 {
    call_unless_faulted(|driver| driver.state().addresses.free(address, bytes as u64))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> u32 {
    call_unless_faulted(|driver| {
        let bytes = bytes as u64;
        check_multiple(&[address, bytes])?;
        // An offset other than 0 is for a later version of the API.
        if bytes == 0 || offset != 0 || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = driver.state();
        let physical = find(&state, handle)?;
        if bytes > physical.bytes {
            return Err(Code::INVALID_VALUE);
        }
        let memory = (physical, handle as usize, None);
        state.addresses.map(driver, address, bytes, memory)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> u32 {
    call_unless_faulted(|driver| {
        let mut state = driver.state();
        let starts = state.addresses.whole(address, bytes as u64)?;
        let is_allocated = |start: &u64| {
            let mapping = state.addresses.mapping(*start);
            mapping.is_some_and(|(_, mapped)| mapped.context.is_some())
        };
        if starts.iter().any(is_allocated) {
            return Err(Code::INVALID_VALUE);
        }
        let ended: Vec<_> = starts
            .into_iter()
            .map(|start| state.addresses.unmap(driver, start))
            .collect();
        drop(state);
        let imported = ended.iter().flatten().filter(|it| it.physical.imported);
        let taken: Vec<_> = imported.flat_map(|it| it.seen().to_vec()).collect();
        // The last mapping of memory whose handle is released frees it: after the lock.
        drop(ended);
        take_from_kernels(driver, &taken);
        Ok(())
    })
}

/// Ends the kernels that go on with memory of another process which was unmapped, as a GPU's page
/// tables do. The engine does not know which kernels use it: a kernel that still runs after a moment
/// is taken for one.
fn take_from_kernels(driver: &Driver, taken: &[Weak<dyn Memory>]) {
    let is_held = || taken.iter().any(|memory| memory.strong_count() != 0);
    let wait = |limit: Duration| {
        let begun = Instant::now();
        while is_held() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait(KERNELS_END);
    if is_held() {
        let text = "a kernel goes on with memory that was unmapped";
        driver.fail(Code::ILLEGAL_ADDRESS, text);
        wait(Duration::from_secs(10));
    }
}

/// Refuses a device that cannot reach memory at a place.
fn check_peers(driver: &Driver, place: Option<Place>, device: usize) -> Answer {
    match place {
        Some(Place::Device(of)) if of != device && !driver.settings.peers => {
            Err(Code::NOT_SUPPORTED)
        }
        _ => Ok(()),
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
        if count == 0 || count > driver.devices.len() + 1 {
            return Err(Code::INVALID_VALUE);
        }
        let descriptions = descriptions.list(count)?;
        let mut state = driver.state();
        let starts = state.addresses.whole(address, bytes as u64)?;
        for AccessDescription { location, flags } in descriptions {
            let access = rights(flags)?;
            for start in &starts {
                match location {
                    Location { kind: 1, id } => {
                        let device = driver.device(id)?;
                        let mapping = state.addresses.mapping(*start);
                        let place = mapping.map(|(_, it)| it.physical.properties.place);
                        check_peers(driver, place, device)?;
                        state.addresses.set_access(driver, *start, device, access)?;
                    }
                    Location { kind: 3, .. } => state.addresses.set_host_access(*start, access)?,
                    Location { kind: 2 | 4, .. } => return Err(Code::NOT_SUPPORTED),
                    _ => return Err(Code::INVALID_VALUE),
                }
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) -> u32 {
    call_unless_faulted(|driver| {
        let location = location.get()?;
        let state = driver.state();
        let (_, mapped) = state
            .addresses
            .mapping(address)
            .ok_or(Code::INVALID_VALUE)?;
        let access = match location {
            Location { kind: 1, id } => mapped.access(driver.device(id)?),
            Location { kind: 3, .. } => mapped.host_access(),
            _ => return Err(Code::INVALID_VALUE),
        };
        flags.set(match access {
            Access::None => 0,
            Access::Read => 1,
            Access::ReadWrite => 3,
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
    call_unless_faulted(|driver| {
        let physical = find(&driver.state(), handle)?;
        let asked = physical.properties.handle_types & kind != 0;
        if descriptor.is_null() || flags != 0 || !asked || physical.imported {
            return Err(Code::INVALID_VALUE);
        }
        if kind == FABRIC {
            let handle = physical.fabric_handle().ok_or(Code::INVALID_VALUE)?;
            return Out::at(descriptor.address_of(0)?).set(handle);
        }
        if kind != POSIX {
            return Err(Code::INVALID_VALUE);
        }
        let exported = physical.export().map_err(|_| Code::OPERATING_SYSTEM)?;
        descriptor.set(std::os::fd::IntoRawFd::into_raw_fd(exported))
    })
}

/// A descriptor is the "pointer" itself; it stays the caller's.
#[unsafe(no_mangle)]
extern "C" fn cuMemImportFromShareableHandle(
    handle: Out<u64>,
    descriptor: usize,
    kind: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        if handle.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let imported = match kind {
            POSIX => {
                let descriptor = i32::try_from(descriptor).map_err(|_| Code::INVALID_VALUE)?;
                Physical::import(descriptor)
            }
            FABRIC => {
                check_fabric(driver)?;
                let name = In::at(descriptor).get()?;
                Physical::import_fabric(&driver.settings.state, &name)
            }
            _ => None,
        };
        let imported = imported.ok_or(Code::INVALID_VALUE)?;
        handle.set(driver.state().physical.insert(Arc::new(imported)) as u64)
    })
}

/// There is no dma-buf of this memory, as of a discrete GPU whose driver refuses it.
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
