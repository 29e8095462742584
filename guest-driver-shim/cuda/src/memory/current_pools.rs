//! Which pools allocations come from that name none.

use super::pool_kinds::PoolKind;
use super::pools::{self, Pools};
use crate::boundary::{In, Out};
use crate::driver::call_unless_faulted;
use crate::error::{Answer, Code};
use crate::structures::Location;

/// Answers a call about the pools of a kind.
fn with_kind(
    kind: u32,
    location: In<Location>,
    call: impl FnOnce(&mut Pools, PoolKind) -> Answer,
) -> u32 {
    call_unless_faulted(|driver| {
        let (driver, location) = pools::place_of(driver, location.get()?)?;
        let kind = PoolKind::of(kind, location)?;
        call(&mut driver.memory.pools.lock(), kind)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetDefaultMemPool(pool: Out<usize>, location: In<Location>, kind: u32) -> u32 {
    with_kind(kind, location, |pools, kind| {
        if pool.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        pool.set(pools.default_pool(kind))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetMemPool(pool: Out<usize>, location: In<Location>, kind: u32) -> u32 {
    with_kind(kind, location, |pools, kind| {
        if pool.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        pool.set(pools.current_pool(kind))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemSetMemPool(location: In<Location>, kind: u32, pool: usize) -> u32 {
    with_kind(kind, location, |pools, kind| pools.set_current(kind, pool))
}
