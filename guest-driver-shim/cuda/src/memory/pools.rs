//! Memory pools and allocation in streams (CUDA driver API, "Stream Ordered Memory Allocator").
//!
//! All pools of a kind share the memory of the process, but those that other processes may use have
//! chunks of their own. A pool counts what was allocated from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ALIGNMENT;
use super::advice::Advice;
use super::pool_kinds::PoolKind;
use super::regions::{Backing, Region};
use super::stores::{Sharing, Stored};
use crate::boundary::{In, Out};
use crate::context::Context;
use crate::driver::{
    Driver, call_of, call_on_unless_faulted, call_unless_faulted, call_with_current_stream,
};
use crate::error::{Answer, Code};
use crate::graph::memory_nodes;
use crate::handles;
use crate::stream;
use crate::structures::{Location, PoolProperties};

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`
const RELEASE_THRESHOLD: u32 = 4;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
pub(super) const READ_WRITE: i32 = 3;
/// `CU_MEM_ATTACH_GLOBAL`
const ATTACHED_TO_ALL: u32 = 1;

/// A memory pool.
pub(super) struct Pool {
    /// Attributes 1 to 3: how freed memory may be reused. It is reused at once in any case.
    reuse: [u32; 3],
    threshold_bytes: u64,
    used_bytes: u64,
    used_bytes_high: u64,
    is_default: bool,
    pub(super) kind: PoolKind,
    /// How the device may access memory of the host (`CUmemAccess_flags`).
    pub(super) access: i32,
    sharing: Sharing,
}

/// All pools.
#[derive(Default)]
pub(super) struct Pools {
    /// What handles of pools have besides: they tell the device.
    pub(super) handle_bits: usize,
    table: BTreeMap<usize, Pool>,
    default: BTreeMap<PoolKind, usize>,
    /// From which `cuMemAllocAsync` allocates, where it is not the default pool.
    current: BTreeMap<PoolKind, usize>,
}

impl Pools {
    fn add(&mut self, kind: PoolKind, is_default: bool, sharing: Sharing) -> usize {
        let handle = handles::fresh() | self.handle_bits;
        let pool = Pool {
            reuse: [1; 3],
            threshold_bytes: 0,
            used_bytes: 0,
            used_bytes_high: 0,
            is_default,
            kind,
            access: READ_WRITE,
            sharing,
        };
        self.table.insert(handle, pool);
        handle
    }

    /// Adds a pool that is shared in some way.
    pub(super) fn add_shared(&mut self, kind: PoolKind, sharing: Sharing) -> usize {
        self.add(kind, false, sharing)
    }

    /// Returns of what kind a pool is, and how it is shared.
    pub(super) fn sharing(&mut self, handle: usize) -> Answer<(PoolKind, Sharing)> {
        self.get(handle)
            .map(|pool| (pool.kind, pool.sharing.clone()))
    }

    /// Returns the default pool of a kind.
    pub(super) fn default_pool(&mut self, kind: PoolKind) -> usize {
        match self.default.get(&kind) {
            Some(handle) => *handle,
            None => {
                let handle = self.add(kind, true, Sharing::Private);
                self.default.insert(kind, handle);
                handle
            }
        }
    }

    /// Returns the pool from which allocations of a kind come.
    pub(super) fn current_pool(&mut self, kind: PoolKind) -> usize {
        match self.current.get(&kind) {
            Some(handle) => *handle,
            None => self.default_pool(kind),
        }
    }

    /// Sets the pool from which allocations of its kind come.
    pub(super) fn set_current(&mut self, kind: PoolKind, handle: usize) -> Answer {
        let pool = self.get(handle)?;
        // Nothing can be allocated from an imported pool.
        pool.sharing.store()?;
        if pool.kind != kind {
            return Err(Code::INVALID_VALUE);
        }
        self.current.insert(kind, handle);
        Ok(())
    }

    pub(super) fn get(&mut self, handle: usize) -> Answer<&mut Pool> {
        self.table.get_mut(&handle).ok_or(Code::INVALID_VALUE)
    }

    /// Takes out a pool.
    fn remove(&mut self, handle: usize) -> Answer<Pool> {
        if self.get(handle)?.is_default {
            return Err(Code::INVALID_VALUE);
        }
        self.current.retain(|_, current| *current != handle);
        self.table.remove(&handle).ok_or(Code::INVALID_VALUE)
    }

    /// Counts memory that was allocated.
    fn note_allocated(&mut self, handle: usize, bytes: u64) {
        if let Some(pool) = self.table.get_mut(&handle) {
            pool.used_bytes += bytes;
            pool.used_bytes_high = pool.used_bytes_high.max(pool.used_bytes);
        }
    }

    /// Counts memory that was freed. A pool may be destroyed before its memory is freed.
    pub(super) fn note_freed(&mut self, handle: usize, bytes: u64) {
        if let Some(pool) = self.table.get_mut(&handle) {
            pool.used_bytes = pool.used_bytes.saturating_sub(bytes);
        }
    }
}

fn allocate(
    driver: &'static Driver,
    context: &Context,
    bytes: usize,
    pool: usize,
    stream: usize,
) -> Answer<u64> {
    let stream = stream::find(driver, context, stream)?;
    let (kind, sharing) = driver.memory.pools.lock().sharing(pool)?;
    let store = sharing.store()?;
    if bytes == 0 {
        return Ok(0);
    }
    if stream.is_capturing() {
        if kind != PoolKind::Device {
            return Err(Code::NOT_SUPPORTED);
        }
        let (kind, address) = memory_nodes::of_captured(driver, context, bytes as u64)?;
        return stream.note(kind).map(|()| address);
    }
    let region = match (store, kind) {
        (Some(store), _) => {
            let stored = Stored::new(driver, Arc::clone(store), (pool, bytes as u64))?;
            stored_region(driver, bytes as u64, stored)
        }
        (None, PoolKind::Device) => device_region(driver, bytes as u64, pool)?,
        (None, kind) => host_region(driver, bytes as u64, (kind, pool))?,
    };
    let context = context.handle;
    let region = Region { context, ..region };
    let address = driver.memory.regions.lock().insert(region);
    driver.show_to_peers(address);
    Ok(address)
}

/// Returns the region of memory that other processes may use.
fn stored_region(driver: &Driver, bytes: u64, stored: Stored) -> Region {
    let mut pools = driver.memory.pools.lock();
    pools.note_allocated(stored.pool, stored.bytes());
    let (gpu, host) = stored.addresses();
    Region {
        bytes,
        gpu: Some(gpu),
        host,
        context: 0,
        flags: 0,
        backing: Backing::Stored(stored),
    }
}

/// Allocates device memory.
fn device_region(driver: &Driver, bytes: u64, pool: usize) -> Answer<Region> {
    let memory = &driver.memory;
    let piece = memory.device.lock().allocate(driver, bytes, ALIGNMENT)?;
    memory.pools.lock().note_allocated(pool, piece.bytes());
    Ok(Region {
        bytes,
        gpu: Some(piece.address()),
        host: None,
        context: 0,
        flags: 0,
        backing: Backing::Piece { piece, pool },
    })
}

/// Allocates memory that CPU and GPU share.
fn host_region(driver: &Driver, bytes: u64, (kind, pool): (PoolKind, usize)) -> Answer<Region> {
    let memory = &driver.memory;
    let piece = memory.allocate_shared(driver, bytes)?;
    memory.pools.lock().note_allocated(pool, piece.bytes());
    Ok(Region {
        bytes,
        gpu: Some(piece.gpu),
        host: Some(piece.host),
        context: 0,
        flags: ATTACHED_TO_ALL,
        backing: match kind {
            PoolKind::Managed(_) => Backing::Managed {
                piece,
                advice: Advice::default(),
                pool,
            },
            _ => Backing::Pooled { piece, pool },
        },
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: usize) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let pool = driver.memory.pools.lock().current_pool(PoolKind::Device);
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
    call_with_current_stream(stream, |driver, context| {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        address.set(allocate(driver, context, bytes, pool, stream)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        let stream = stream::find(driver, context, stream)?;
        match address {
            0 => Ok(()),
            address if stream.is_capturing() => {
                stream.note(memory_nodes::of_free(driver, address)?)
            }
            address => {
                let owner = driver.owner_at(address);
                if owner.ordinal != driver.ordinal {
                    driver.wait_for(stream.end(driver))?;
                }
                owner.memory.free_behind_work(owner, address)
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolCreate(into: Out<usize>, properties: In<PoolProperties>) -> u32 {
    call_unless_faulted(|driver| {
        let given = properties.get()?;
        if into.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let kind = PoolKind::of_properties(&given)?;
        let sharing = match given.handle_types {
            0 => Sharing::Private,
            _ => Sharing::export(driver, kind)?,
        };
        into.set(driver.memory.pools.lock().add(kind, false, sharing))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(pool: usize) -> u32 {
    call_of(pool, |driver| {
        let removed = driver.memory.pools.lock().remove(pool)?;
        if let Sharing::Exported { store, .. } = removed.sharing {
            store.trim(driver);
        }
        // Other devices go on to reach what is still allocated.
        if removed.used_bytes == 0 {
            for device in Driver::all() {
                // One that has failed reaches nothing any more.
                let _ = device.open_pool(driver, pool, false);
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(pool: usize, attribute: u32, value: usize) -> u32 {
    call_of(pool, |driver| {
        let mut pools = driver.memory.pools.lock();
        let pool = pools.get(pool)?;
        // They say how the process that made the pool allocates from it.
        pool.sharing.store()?;
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
    call_of(pool, |driver| {
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
    call_of(pool, |driver| {
        let (_, sharing) = driver.memory.pools.lock().sharing(pool)?;
        match sharing {
            Sharing::Private => driver.memory.device.lock().trim(driver),
            Sharing::Exported { store, .. } => {
                driver.rings.drain(driver)?;
                store.trim(driver);
                Ok(())
            }
            Sharing::Imported { .. } => Err(Code::INVALID_VALUE),
        }
    })
}

/// Returns the driver of the device at a location, and the location as that device calls it: number
/// 0. Other places are those of `driver`'s device.
pub(super) fn place_of(
    driver: &'static Driver,
    location: Location,
) -> Answer<(&'static Driver, Location)> {
    match location.kind {
        1 => Ok((device_of(location.id)?, Location { id: 0, ..location })),
        _ => Ok((driver, location)),
    }
}

/// Returns the driver of a device. Pools call a number that none has an invalid value.
fn device_of(number: i32) -> Answer<&'static Driver> {
    let driver = Driver::of_device(number).map_err(|_| Code::INVALID_VALUE)?;
    driver.check_sticky().map(|()| driver)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDefaultMemPool(pool: Out<usize>, device: i32) -> u32 {
    call_on_unless_faulted(device, |driver| {
        pool.set(driver.memory.pools.lock().default_pool(PoolKind::Device))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetMemPool(pool: Out<usize>, device: i32) -> u32 {
    call_unless_faulted(|_| {
        let driver = device_of(device)?;
        pool.set(driver.memory.pools.lock().current_pool(PoolKind::Device))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceSetMemPool(device: i32, pool: usize) -> u32 {
    call_unless_faulted(|_| {
        let driver = device_of(device)?;
        let mut pools = driver.memory.pools.lock();
        pools.set_current(PoolKind::Device, pool)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_count_their_own_memory_and_the_default_stays() {
        let mut pools = Pools::default();
        let kind = PoolKind::Device;
        let default = pools.default_pool(kind);
        assert_eq!(
            (pools.default_pool(kind), pools.current_pool(kind)),
            (default, default)
        );
        assert_ne!(pools.default_pool(PoolKind::Host), default);
        let own = pools.add(kind, false, Sharing::Private);
        assert_eq!(
            pools.set_current(PoolKind::Host, own),
            Err(Code::INVALID_VALUE)
        );
        pools.set_current(kind, own).unwrap();
        pools.note_allocated(own, 512);
        pools.note_freed(own, 256);
        assert_eq!(pools.get(own).unwrap().used_bytes, 256);
        assert_eq!(pools.get(own).unwrap().used_bytes_high, 512);
        assert_eq!(pools.get(default).unwrap().used_bytes, 0);
        assert_eq!(pools.remove(default).err(), Some(Code::INVALID_VALUE));
        assert!(pools.remove(own).is_ok());
        assert_eq!(pools.remove(own).err(), Some(Code::INVALID_VALUE));
        assert_eq!(pools.current_pool(kind), default);
        pools.note_freed(own, 256);
    }
    #[test]
    fn nothing_is_allocated_from_an_imported_pool() {
        let mut pools = Pools::default();
        let identity = [3; 16];
        let imported = pools.add_shared(PoolKind::Device, Sharing::Imported { identity });
        let refused = pools.set_current(PoolKind::Device, imported);
        assert_eq!(refused, Err(Code::INVALID_VALUE));
        let (kind, sharing) = pools.sharing(imported).unwrap();
        assert_eq!(kind, PoolKind::Device);
        assert_eq!(sharing.store().err(), Some(Code::INVALID_VALUE));
        assert!(matches!(Sharing::Private.store(), Ok(None)));
    }
}
