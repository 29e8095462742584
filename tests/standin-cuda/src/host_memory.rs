//! Page-locked host memory (CUDA driver API, "Memory Management": `cuMemHost…`).

use causeway_protocol::Access;

use crate::attributes;
use crate::boundary::Out;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::host_ranges::{HostRange, pages};

/// `CU_MEMHOSTREGISTER_IOMEMORY`
const IO_MEMORY: u32 = 4;
/// `CU_MEMHOSTREGISTER_READ_ONLY`
const READ_ONLY: u32 = 8;

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) -> u32 {
    call_in_context(|driver, _| {
        driver.supports(attributes::HOST_REGISTER)?;
        if address == 0 || bytes == 0 || flags & !15 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if flags & IO_MEMORY != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let access = if flags & READ_ONLY != 0 {
            driver.supports(attributes::READ_ONLY_REGISTER)?;
            Access::Read
        } else {
            Access::ReadWrite
        };
        register(driver, pages(address, bytes as u64)?, access, flags)
    })
}

fn register(driver: &Driver, (start, bytes): (u64, u64), access: Access, flags: u32) -> Answer {
    let mut state = driver.state();
    if state.host.overlaps(start, start + bytes) {
        return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
    }
    let sum = state.host.registered_bytes().checked_add(bytes);
    if sum.is_none_or(|sum| sum > driver.settings.locked_bytes) {
        return Err(Code::OUT_OF_MEMORY);
    }
    let same = driver.supports(attributes::HOST_POINTERS).is_ok();
    let device_start = if same {
        start
    } else {
        let room = bytes.next_multiple_of(crate::addresses::GRANULARITY);
        state.addresses.reserve(room, 0, 0)?
    };
    let kind = (true, flags);
    let shown = HostRange::show(driver, (start, bytes), device_start, access, kind);
    if shown.is_err() && !same {
        free_device_start(&mut state.addresses, device_start);
    }
    state.host.insert(start, shown?);
    Ok(())
}

fn free_device_start(addresses: &mut crate::addresses::Addresses, start: u64) {
    if let Some((start, bytes)) = addresses.reservation(start) {
        // Nothing of `Addresses` is mapped there.
        let _ = addresses.free(start, bytes);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(address: u64) -> u32 {
    call_in_context(|driver, _| {
        let (start, _) = pages(address, 1)?;
        let range = {
            let mut state = driver.state();
            let range = state.host.remove(start, true);
            let range = range.ok_or(Code::HOST_MEMORY_NOT_REGISTERED)?;
            if range.device_start != start {
                free_device_start(&mut state.addresses, range.device_start);
            }
            range
        };
        range.withdraw(driver);
        Ok(())
    })
}

fn allocate(into: Out<u64>, bytes: usize, flags: u32) -> u32 {
    call_in_context(|driver, _| {
        if into.is_null() || bytes == 0 || flags & !7 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (_, bytes) = pages(0, bytes as u64)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let visibility = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let (none, length) = (std::ptr::null_mut(), bytes as usize);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(none, length, rights, visibility, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Code::OUT_OF_MEMORY);
        }
        let start = base as u64;
        let kind = (false, flags);
        let range = HostRange::show(driver, (start, bytes), start, Access::ReadWrite, kind)?;
        driver.state().host.insert(start, range);
        into.set(start)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(into: Out<u64>, bytes: usize, flags: u32) -> u32 {
    allocate(into, bytes, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(into: Out<u64>, bytes: usize) -> u32 {
    allocate(into, bytes, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: u64) -> u32 {
    call_in_context(|driver, _| {
        let range = driver.state().host.remove(address, false);
        let range = range.ok_or(Code::INVALID_VALUE)?;
        let bytes = range.bytes;
        range.withdraw(driver);
        // SAFETY: mapped by `allocate`; by the API's contract the client is done with it.
        unsafe { libc::munmap(address as *mut _, bytes as usize) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetDevicePointer_v2(pointer: Out<u64>, address: u64, flags: u32) -> u32 {
    call_in_context(|driver, _| {
        let state = driver.state();
        let found = state.host.find(address).filter(|_| flags == 0);
        let (start, range) = found.ok_or(Code::INVALID_VALUE)?;
        pointer.set(range.device_start + (address - start))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetFlags(flags: Out<u32>, address: u64) -> u32 {
    call_in_context(|driver, _| {
        let state = driver.state();
        let (_, range) = state.host.find(address).ok_or(Code::INVALID_VALUE)?;
        flags.set(range.flags)
    })
}
