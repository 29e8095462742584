//! Memory pools and allocation in streams (CUDA driver API, "Stream Ordered Memory Allocator").
//!
//! All pools share the memory of the process. A pool counts what was allocated from it.

use std::collections::BTreeMap;

use super::ALIGNMENT;
use super::regions::{Backing, Region};
use crate::boundary::{In, Out};
use crate::context::Context;
use crate::driver::{Driver, call_in_context, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::handles;
use crate::stream;
use crate::structures::{AccessDescription, Location, PoolProperties};

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`
const RELEASE_THRESHOLD: u32 = 4;

/// A memory pool.
#[derive(Debug)]
struct Pool {
    /// Attributes 1 to 3: how freed memory may be reused. It is reused at once in any case.
    reuse: [u32; 3],
    threshold_bytes: u64,
    used_bytes: u64,
    used_bytes_high: u64,
    is_default: bool,
}

/// All pools.
#[derive(Debug, Default)]
pub(super) struct Pools {
    table: BTreeMap<usize, Pool>,
    default: usize,
    /// From which `cuMemAllocAsync` allocates.
    current: usize,
}

impl Pools {
    fn add(&mut self, is_default: bool) -> usize {
        let handle = handles::fresh();
        let pool = Pool {
            reuse: [1; 3],
            threshold_bytes: 0,
            used_bytes: 0,
            used_bytes_high: 0,
            is_default,
        };
        self.table.insert(handle, pool);
        handle
    }

    fn default_pool(&mut self) -> usize {
        if self.default == 0 {
            self.default = self.add(true);
        }
        self.default
    }

    fn current_pool(&mut self) -> usize {
        match self.current {
            0 => self.default_pool(),
            handle => handle,
        }
    }

    fn get(&mut self, handle: usize) -> Answer<&mut Pool> {
        self.table.get_mut(&handle).ok_or(Code::INVALID_VALUE)
    }

    fn remove(&mut self, handle: usize) -> Answer {
        if self.get(handle)?.is_default {
            return Err(Code::INVALID_VALUE);
        }
        self.table.remove(&handle);
        if self.current == handle {
            self.current = 0;
        }
        Ok(())
    }

    /// Counts memory that was freed. A pool may be destroyed before its memory is freed.
    pub(super) fn note_freed(&mut self, handle: usize, bytes: u64) {
        if let Some(pool) = self.table.get_mut(&handle) {
            pool.used_bytes = pool.used_bytes.saturating_sub(bytes);
        }
    }
}

impl Pool {
    fn note_allocated(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.used_bytes_high = self.used_bytes_high.max(self.used_bytes);
    }
}

fn allocate(
    driver: &Driver,
    context: &Context,
    bytes: usize,
    pool: usize,
    stream: usize,
) -> Answer<u64> {
    let stream = stream::find(driver, context, stream)?;
    driver.memory.pools.lock().get(pool)?;
    if bytes == 0 {
        return Ok(0);
    }
    if stream.is_capturing() {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let bytes = bytes as u64;
    let piece = driver
        .memory
        .device
        .lock()
        .allocate(driver, bytes, ALIGNMENT)?;
    if let Ok(pool) = driver.memory.pools.lock().get(pool) {
        pool.note_allocated(piece.bytes());
    }
    let region = Region {
        bytes,
        gpu: Some(piece.address()),
        host: None,
        context: context.handle,
        flags: 0,
        backing: Backing::Piece { piece, pool },
    };
    Ok(driver.memory.regions.lock().insert(region))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let pool = driver.memory.pools.lock().current_pool();
        address.set(allocate(driver, context, bytes, pool, stream)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocFromPoolAsync(
    address: Out<u64>,
    bytes: usize,
    pool: usize,
    stream: usize,
) -> u32 {
    call_in_context(|driver, context| {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        address.set(allocate(driver, context, bytes, pool, stream)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let stream = stream::find(driver, context, stream)?;
        if stream.is_capturing() {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        match address {
            0 => Ok(()),
            address => driver.memory.free(driver, address),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolCreate(into: Out<usize>, properties: In<PoolProperties>) -> u32 {
    call_unless_faulted(|driver| {
        let given = properties.get()?;
        // Pinned memory (1) is the one kind.
        if into.is_null() || given.kind != 1 {
            return Err(Code::INVALID_VALUE);
        }
        // A file and a fabric handle are known, and not supported.
        if !matches!(given.handle_types, 0 | 1 | 8) {
            return Err(Code::INVALID_VALUE);
        }
        let is_here = given.location.kind == 1 && given.location.id == 0;
        if !is_here || given.rest.iter().any(|byte| *byte != 0) {
            return Err(Code::INVALID_VALUE);
        }
        if given.handle_types != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        into.set(driver.memory.pools.lock().add(false))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(pool: usize) -> u32 {
    call_unless_faulted(|driver| driver.memory.pools.lock().remove(pool))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(pool: usize, attribute: u32, value: usize) -> u32 {
    call_unless_faulted(|driver| {
        let mut pools = driver.memory.pools.lock();
        let pool = pools.get(pool)?;
        match attribute {
            1..=3 => pool.reuse[attribute as usize - 1] = In::<u32>::at(value).get()?,
            RELEASE_THRESHOLD => pool.threshold_bytes = In::<u64>::at(value).get()?,
            // The high marks can be reset.
            6 | 8 if In::<u64>::at(value).get()? == 0 => {
                pool.used_bytes_high = pool.used_bytes;
            }
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolGetAttribute(pool: usize, attribute: u32, value: usize) -> u32 {
    call_unless_faulted(|driver| {
        let mut pools = driver.memory.pools.lock();
        let pool = pools.get(pool)?;
        let wide = |bytes: u64| Out::<u64>::at(value).set(bytes);
        match attribute {
            1..=3 => Out::<u32>::at(value).set(pool.reuse[attribute as usize - 1]),
            RELEASE_THRESHOLD => wide(pool.threshold_bytes),
            // What a pool has is what is used of it: the rest belongs to all.
            5 | 7 => wide(pool.used_bytes),
            6 | 8 => wide(pool.used_bytes_high),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: usize, _kept_bytes: usize) -> u32 {
    call_unless_faulted(|driver| {
        driver.memory.pools.lock().get(pool)?;
        driver.memory.device.lock().trim(driver)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAccess(
    pool: usize,
    descriptions: In<AccessDescription>,
    count: usize,
) -> u32 {
    call_unless_faulted(|driver| {
        driver.memory.pools.lock().get(pool)?;
        (0..count).try_for_each(|index| {
            let AccessDescription { location, flags } = descriptions.get_at(index)?;
            if location.kind != 1 {
                return Err(Code::NOT_SUPPORTED);
            }
            driver.device_of(location.id)?;
            match flags {
                3 => Ok(()),
                // A device cannot lose the memory of its own pools.
                0 => Err(Code::INVALID_DEVICE),
                _ => Err(Code::INVALID_VALUE),
            }
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolGetAccess(flags: Out<u32>, pool: usize, location: In<Location>) -> u32 {
    call_unless_faulted(|driver| {
        driver.memory.pools.lock().get(pool)?;
        match location.get()? {
            Location { kind: 1, id: 0 } => flags.set(3),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

/// Refuses another device than the one. Pools call it an invalid value.
fn check_device(device: i32) -> Answer {
    (device == 0).then_some(()).ok_or(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDefaultMemPool(pool: Out<usize>, device: i32) -> u32 {
    call_unless_faulted(|driver| {
        driver.device_of(device)?;
        pool.set(driver.memory.pools.lock().default_pool())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetMemPool(pool: Out<usize>, device: i32) -> u32 {
    call_unless_faulted(|driver| {
        check_device(device)?;
        pool.set(driver.memory.pools.lock().current_pool())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceSetMemPool(device: i32, pool: usize) -> u32 {
    call_unless_faulted(|driver| {
        check_device(device)?;
        let mut pools = driver.memory.pools.lock();
        pools.get(pool)?;
        pools.current = pool;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_count_their_own_memory_and_the_default_stays() {
        let mut pools = Pools::default();
        let default = pools.default_pool();
        assert_eq!(
            (pools.default_pool(), pools.current_pool()),
            (default, default)
        );
        let own = pools.add(false);
        pools.current = own;
        pools.get(own).unwrap().note_allocated(512);
        pools.note_freed(own, 256);
        assert_eq!(pools.get(own).unwrap().used_bytes, 256);
        assert_eq!(pools.get(own).unwrap().used_bytes_high, 512);
        assert_eq!(pools.get(default).unwrap().used_bytes, 0);
        assert_eq!(pools.remove(default), Err(Code::INVALID_VALUE));
        pools.remove(own).unwrap();
        assert_eq!(pools.remove(own), Err(Code::INVALID_VALUE));
        assert_eq!(pools.current_pool(), default);
        pools.note_freed(own, 256);
    }
}
