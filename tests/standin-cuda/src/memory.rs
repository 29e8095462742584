//! Device memory with an address of its own, and what pointers are (CUDA driver API, "Memory
//! Management", "Unified Addressing").

use std::sync::Arc;

use causeway_memory::PAGE_BYTES;
use causeway_protocol::Access;

use crate::addresses::{GRANULARITY, VARIABLES};
use crate::boundary::Out;
use crate::driver::{Driver, State, call_in_context};
use crate::error::{Answer, Code};
use crate::physical::{Physical, Place, Properties};

/// What an address and the bytes behind it are for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Memory that the device reaches at this address.
    Device(u64),
    /// Memory that only the host may reach.
    Pageable(u64),
}

impl Driver {
    /// Finds out what a range of addresses is, as unified addressing has it.
    pub(crate) fn reach(&self, device: usize, address: u64, bytes: u64) -> Answer<Reached> {
        let state = self.state();
        if let Some((start, range)) = state.host.find(address) {
            if address - start + bytes > range.bytes {
                return Err(Code::INVALID_VALUE);
            }
            return Ok(Reached::Device(range.device_start + (address - start)));
        }
        if state.is_device(address) {
            drop(state);
            self.check_device_range(device, address, bytes)?;
            return Ok(Reached::Device(address));
        }
        Ok(Reached::Pageable(address))
    }

    /// Refuses a range that a device does not reach at these addresses.
    pub(crate) fn check_device_range(&self, device: usize, address: u64, bytes: u64) -> Answer {
        let state = self.state();
        let on_host = state
            .host
            .find_on_device(address)
            .is_some_and(|(_, range)| address - range.device_start + bytes <= range.bytes);
        let is_fine =
            on_host || address >= VARIABLES || state.addresses.covers(address, bytes, device);
        if is_fine {
            Ok(())
        } else {
            Err(Code::INVALID_VALUE)
        }
    }
}

impl State {
    /// Whether an address belongs to devices: mapped, reserved, or a variable.
    fn is_device(&self, address: u64) -> bool {
        address >= VARIABLES
            || self.addresses.reservation(address).is_some()
            || self.host.find_on_device(address).is_some()
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) -> u32 {
    call_in_context(|driver, context| {
        if address.is_null() || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (device, owner) = (context.device, Some(context.handle));
        address.set(allocate(driver, device, bytes as u64, owner)?)
    })
}

/// Memory of a device at an address of its own; of a context, if one is given.
pub(crate) fn allocate(
    driver: &'static Driver,
    device: usize,
    bytes: u64,
    context: Option<usize>,
) -> Answer<u64> {
    let bytes = bytes
        .checked_next_multiple_of(PAGE_BYTES)
        .ok_or(Code::OUT_OF_MEMORY)?;
    let charge = driver.charge(device, bytes)?;
    let properties = Properties {
        place: Place::Device(device),
        handle_types: 0,
        flags: 0,
    };
    let made = Physical::create(bytes, properties, driver.settings.vulkan, Some(charge));
    let made = Arc::new(made.map_err(|_| Code::OUT_OF_MEMORY)?);
    let mut state = driver.state();
    let room = bytes.next_multiple_of(GRANULARITY);
    let start = state.addresses.reserve(room, 0, 0)?;
    state
        .addresses
        .map(driver, start, bytes, (made, 0, context))?;
    state
        .addresses
        .set_access(driver, start, device, Access::ReadWrite)?;
    Ok(start)
}

/// Ends memory that [`allocate`] has made, and its addresses.
pub(crate) fn release(driver: &Driver, address: u64) -> Answer {
    let mut state = driver.state();
    let ended = state.addresses.unmap(driver, address);
    if let Some((start, bytes)) = state.addresses.reservation(address) {
        state.addresses.free(start, bytes)?;
    }
    drop(state);
    ended.map(drop).ok_or(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    call_in_context(|driver, _| {
        if address == 0 {
            return Ok(());
        }
        let state = driver.state();
        let mapping = state.addresses.mapping(address);
        if !mapping.is_some_and(|(start, found)| start == address && found.context.is_some()) {
            return Err(Code::INVALID_VALUE);
        }
        drop(state);
        release(driver, address)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, address: u64) -> u32 {
    call_in_context(|driver, _| {
        let state = driver.state();
        let (start, mapped) = state.addresses.mapping(address).ok_or(Code::NOT_FOUND)?;
        base.set_if_wanted(start);
        bytes.set_if_wanted(mapped.bytes as usize);
        Ok(())
    })
}

/// What is known about a pointer.
struct Known {
    /// 1 host, 2 device.
    memory_type: u64,
    start: u64,
    bytes: u64,
    device: u64,
    host: Option<u64>,
    context: u64,
}

fn known(state: &State, address: u64) -> Answer<Known> {
    if let Some((start, range)) = state.host.find(address) {
        return Ok(Known {
            memory_type: 1,
            start,
            bytes: range.bytes,
            device: range.device_start + (address - start),
            host: Some(address),
            context: 0,
        });
    }
    let (start, mapped) = state
        .addresses
        .mapping(address)
        .ok_or(Code::INVALID_VALUE)?;
    let on_device = matches!(mapped.physical.properties.place, Place::Device(_));
    Ok(Known {
        memory_type: if on_device { 2 } else { 1 },
        start,
        bytes: mapped.bytes,
        device: address,
        host: (!on_device).then_some(address),
        context: mapped.context.unwrap_or(0) as u64,
    })
}

/// Each attribute has its own type: 32 or 64 bits wide.
#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(data: usize, attribute: u32, address: u64) -> u32 {
    call_in_context(|driver, _| {
        let state = driver.state();
        let known = known(&state, address)?;
        let wide = |value: u64| Out::<u64>::at(data).set(value);
        let narrow = |value: u64| Out::<u32>::at(data).set(value as u32);
        match attribute {
            1 => wide(known.context),
            2 => narrow(known.memory_type),
            3 => wide(known.device),
            4 => wide(known.host.ok_or(Code::INVALID_VALUE)?),
            8 => narrow(0),
            9 => narrow(match state.addresses.mapping(address) {
                Some((_, mapped)) => match mapped.physical.properties.place {
                    Place::Device(device) => device as u64,
                    Place::HostNuma(_) => 0,
                },
                None => 0,
            }),
            11 => wide(known.start),
            12 => wide(known.bytes),
            13 => narrow(1),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}
