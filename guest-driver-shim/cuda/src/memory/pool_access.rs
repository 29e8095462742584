//! Access of devices to memory pools (CUDA driver API, "Stream Ordered Memory Allocator").

use super::pool_kinds::PoolKind;
use super::pools::READ_WRITE;
use super::stores::Sharing;
use crate::boundary::{In, Out};
use crate::driver::{Driver, call_of};
use crate::error::{Answer, Code};
use crate::structures::{AccessDescription, Location};

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAccess(
    pool: usize,
    descriptions: In<AccessDescription>,
    count: usize,
) -> u32 {
    call_of(pool, |driver| {
        // Refused also if nothing is asked of it.
        driver.memory.pools.lock().get(pool)?;
        (0..count).try_for_each(|index| {
            let AccessDescription { location, flags } = descriptions.get_at(index)?;
            if location.kind != 1 {
                return Err(Code::NOT_SUPPORTED);
            }
            let device = Driver::of_device(location.id)?;
            match device.ordinal == driver.ordinal {
                true => set_own_access(driver, pool, flags),
                false => set_access_of(device, driver, pool, flags),
            }
        })
    })
}

/// Sets the access of a pool's own device.
fn set_own_access(driver: &Driver, pool: usize, flags: i32) -> Answer {
    let mut pools = driver.memory.pools.lock();
    let pool = pools.get(pool)?;
    match (flags, pool.kind) {
        (READ_WRITE, _) | (0, PoolKind::Host) => pool.access = flags,
        // A device cannot lose the memory of its own pools.
        (0, _) => return Err(Code::INVALID_DEVICE),
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

/// Sets the access of another `device` to a pool of `owner`.
fn set_access_of(
    device: &'static Driver,
    owner: &'static Driver,
    pool: usize,
    flags: i32,
) -> Answer {
    let (kind, sharing) = owner.memory.pools.lock().sharing(pool)?;
    match (flags, kind, sharing) {
        (0 | READ_WRITE, PoolKind::Device, Sharing::Private) => {
            device.open_pool(owner, pool, flags != 0)
        }
        // Its access stays none.
        (0, ..) => Ok(()),
        (READ_WRITE, ..) => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolGetAccess(flags: Out<u32>, handle: usize, location: In<Location>) -> u32 {
    call_of(handle, |driver| {
        let mut pools = driver.memory.pools.lock();
        let pool = pools.get(handle)?;
        match (location.get()?, pool.kind) {
            (Location { kind: 1, id }, _) => {
                let found = Driver::of_device(id).map_err(|_| Code::INVALID_VALUE)?;
                let access = match found.ordinal == driver.ordinal {
                    true => pool.access,
                    false if found.reaches_pool(handle) => READ_WRITE,
                    false => 0,
                };
                flags.set(access.cast_unsigned())
            }
            // The host accesses its own memory.
            (Location { kind: 2..=4, .. }, PoolKind::Host | PoolKind::Managed(_)) => {
                flags.set(READ_WRITE.cast_unsigned())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    })
}
