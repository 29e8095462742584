//! Page-locked host memory (`cuMemHostAlloc`, `cuMemAllocHost`).

use super::regions::{Backing, Region};
use super::registered;
use crate::boundary::Out;
use crate::driver::call_in_context;
use crate::error::Code;

/// `CU_MEMHOSTALLOC_PORTABLE`, `…_DEVICEMAP`, `…_WRITECOMBINED`: all memory is as the first two
/// say.
const FLAGS: u32 = 7;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`
const USUAL_FLAGS: u32 = 3;

fn allocate(into: Out<u64>, bytes: usize, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        if into.is_null() || flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        driver.captures.check_unsafe()?;
        if bytes == 0 {
            return into.set(0);
        }
        let mut memory = driver.memory.host.lock();
        memory.collect(driver);
        let piece = memory.allocate(bytes as u64)?;
        drop(memory);
        let region = Region {
            bytes: bytes as u64,
            gpu: Some(piece.gpu),
            host: Some(piece.host),
            context: context.handle,
            flags,
            backing: Backing::Host(piece),
        };
        into.set(driver.memory.regions.lock().insert(region))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(into: Out<u64>, bytes: usize, flags: u32) -> u32 {
    allocate(into, bytes, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(into: Out<u64>, bytes: usize) -> u32 {
    allocate(into, bytes, USUAL_FLAGS)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: u64) -> u32 {
    call_in_context(|driver, _| {
        let driver = driver.owner_at(address);
        driver.captures.check_unsafe()?;
        if address == 0 {
            return Ok(());
        }
        let is_allocated = |region: &Region| matches!(region.backing, Backing::Host(_));
        let taken = driver.memory.regions.lock().take(address, is_allocated);
        let taken = taken.ok_or(Code::INVALID_VALUE)?;
        // The CPU may get the memory again at once.
        let drained = driver.rings.drain(driver);
        driver.memory.give_back(driver, taken);
        drained
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetDevicePointer_v2(pointer: Out<u64>, address: u64, flags: u32) -> u32 {
    call_in_context(|driver, _| {
        if pointer.is_null() || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let regions = driver.memory.regions.lock();
        let found = regions.find(address);
        let found = found.filter(|(_, region)| region.host.is_some());
        let (start, region) = found.ok_or(Code::INVALID_VALUE)?;
        let (gpu, bytes) = (region.gpu, region.bytes);
        drop(regions);
        let gpu = match gpu {
            Some(gpu) => gpu,
            None => registered::show(driver, start, bytes)?,
        };
        pointer.set(gpu + (address - start))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetFlags(flags: Out<u32>, address: u64) -> u32 {
    call_in_context(|driver, _| {
        let regions = driver.owner_at(address).memory.regions.lock();
        let (_, region) = regions.find(address).ok_or(Code::INVALID_VALUE)?;
        match region.backing {
            Backing::Host(_) | Backing::Registered(_) => flags.set(region.flags),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}
