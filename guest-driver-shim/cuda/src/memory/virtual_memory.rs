//! Virtual memory (CUDA driver API, "Virtual Memory Management").

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_shim_linux::shim::{Access, Allocation, GpuMapping};

use super::physical::Physical;
use super::regions::{Backing, Region, Regions};
use super::reservations::{self, GRANULARITY, check_multiples};
use crate::boundary::{In, Out};
use crate::driver::{Driver, call_at, call_of, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::structures::{AccessDescription, Location};

/// Addresses have 47 bits.
const ALIGNMENT_MAX: u64 = 1 << 46;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
const DEVICE: i32 = 1;

/// A mapping of physical memory, which the GPU reaches once it has rights.
pub(crate) struct Mapped {
    physical: Arc<Physical>,
    handle: u64,
    access: Access,
    mapping: Option<GpuMapping<'static>>,
    /// The same for other devices that have rights, by their numbers.
    peers: BTreeMap<usize, PeerMapping>,
}

/// A mapping for another device than the one that has the memory. A drop ends it.
struct PeerMapping {
    access: Access,
    mapping: GpuMapping<'static>,
    _memory: Allocation<'static>,
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
                let memory = self.physical.memory()?;
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

    /// Gives another device rights to the mapping at `start`, or takes them.
    fn set_peer_access(
        &mut self,
        peer: &'static Driver,
        (start, bytes): (u64, u64),
        access: Access,
    ) -> Answer {
        if access == Access::None {
            self.peers.remove(&peer.ordinal);
            return Ok(());
        }
        let refused = |error: &dyn std::fmt::Display| {
            log::debug!(
                "cannot give device {} access to {start:#x}: {error}",
                peer.ordinal
            );
            Code::INVALID_VALUE
        };
        if let Some(known) = self.peers.get_mut(&peer.ordinal) {
            let set = known.mapping.set_access(access);
            set.map_err(|error| refused(&error))?;
            known.access = access;
            return Ok(());
        }
        let memory = self.physical.for_peer(peer)?;
        let mapping = peer.space.map_at(&memory, 0, bytes, access, start);
        let mapping = PeerMapping {
            access,
            mapping: mapping.map_err(|error| refused(&error))?,
            _memory: memory,
        };
        self.peers.insert(peer.ordinal, mapping);
        Ok(())
    }

    /// Returns the rights of the device with number `ordinal` to memory of the device with number
    /// `owner`.
    fn access_of(&self, owner: usize, ordinal: usize) -> Access {
        match ordinal == owner {
            true => self.access,
            false => {
                let peer = self.peers.get(&ordinal);
                peer.map_or(Access::None, |peer| peer.access)
            }
        }
    }

    /// Returns whether another device has rights.
    pub(super) fn is_reached_by(&self, ordinal: usize) -> bool {
        self.peers.contains_key(&ordinal)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRetainAllocationHandle(into: Out<u64>, address: u64) -> u32 {
    call_at(address, |driver| {
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
        let is_aligned = is_aligned && alignment <= ALIGNMENT_MAX;
        if address.is_null() || bytes == 0 || !is_aligned || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let alignment = alignment.max(GRANULARITY);
        let attributes = &driver.attributes;
        // Addresses are the process's, and the first device notes what is reserved.
        let reserved = &mut Driver::get()?.memory.regions.lock().reserved;
        let start = reservations::reserve_addresses(attributes, reserved, bytes, alignment, hint)?;
        reserved.insert(start, bytes);
        address.set(start)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> u32 {
    call_unless_faulted(|_| {
        let bytes = bytes as u64;
        let is_mapped = is_in_use(address, bytes);
        let mut regions = Driver::get()?.memory.regions.lock();
        let is_whole = regions.reserved.get(&address) == Some(&bytes);
        if !is_whole || is_mapped {
            return Err(Code::INVALID_VALUE);
        }
        regions.reserved.remove(&address);
        reservations::release(address, bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> u32 {
    call_of(handle as usize, |driver| {
        let bytes = bytes as u64;
        check_multiples(&[address])?;
        if bytes == 0 || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let physical = driver.memory.regions.lock().physicals.get(handle)?;
        // An offset other than 0 is for a later version of the API.
        if offset != 0 || check_multiples(&[bytes]).is_err() {
            return Err(Code::NOT_SUPPORTED);
        }
        let reservation = Driver::get()?.memory.regions.lock().reservation(address);
        let (start, reserved) = reservation.ok_or(Code::INVALID_VALUE)?;
        let is_inside = bytes <= reserved - (address - start);
        if !is_inside || is_in_use(address, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        if bytes > physical.bytes_to_map(driver, bytes)? {
            return Err(Code::NOT_SUPPORTED);
        }
        driver.memory.regions.lock().insert_mapping(
            address,
            bytes,
            Mapped {
                physical,
                handle,
                access: Access::None,
                mapping: None,
                peers: BTreeMap::new(),
            },
        );
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> u32 {
    call_at(address, |driver| {
        driver.rings.drain(driver)?;
        for other in Driver::all() {
            // Work of a device that has failed uses nothing any more.
            let _ = other.rings.drain(other);
        }
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

/// Returns whether any device has memory in a range.
fn is_in_use(start: u64, bytes: u64) -> bool {
    let mut all = Driver::all().iter();
    all.any(|driver| driver.memory.regions.lock().overlaps(start, bytes))
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
    call_at(address, |driver| {
        if count == 0 || count > Driver::all().len() {
            return Err(Code::INVALID_VALUE);
        }
        let given = (0..count).map(|index| wanted(driver, descriptions.get_at(index)?));
        let given: Vec<_> = given.collect::<Answer<_>>()?;
        given.into_iter().try_for_each(|(device, access)| {
            set_access(driver, address, bytes as u64, device, access)
        })
    })
}

/// Returns what a description asks for: a device, which can reach memory of `owner`'s, and rights.
fn wanted(owner: &Driver, description: AccessDescription) -> Answer<(&'static Driver, Access)> {
    let AccessDescription { location, flags } = description;
    let access = rights(flags)?;
    let device = match location {
        Location { kind: DEVICE, id } => Driver::of_device(id).map_err(|_| Code::INVALID_VALUE)?,
        Location { kind: 2..=4, .. } => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_VALUE),
    };
    match device.ordinal == owner.ordinal || device.can_reach(owner) {
        true => Ok((device, access)),
        false => Err(Code::NOT_SUPPORTED),
    }
}

/// Gives a device rights to whole mappings of memory of `owner`'s device, or takes them.
fn set_access(
    owner: &'static Driver,
    address: u64,
    bytes: u64,
    device: &'static Driver,
    access: Access,
) -> Answer {
    if access != Access::ReadWrite {
        // Work that was submitted may use the rights that go.
        device.rings.drain(device)?;
    }
    let mut regions = owner.memory.regions.lock();
    for start in regions.whole_mappings(address, bytes)? {
        let (bytes, mapped) = mapping_at(&mut regions, start)?;
        if device.ordinal != owner.ordinal {
            mapped.set_peer_access(device, (start, bytes), access)?;
            continue;
        }
        mapped.set_access(owner, start, bytes, access)?;
        let gpu = (access != Access::None).then_some(start);
        if let Some((_, region)) = regions.find_mut(start) {
            region.gpu = gpu;
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) -> u32 {
    call_at(address, |driver| {
        let location = location.get()?;
        if location.kind != DEVICE {
            return Err(Code::INVALID_DEVICE);
        }
        let device = Driver::of_device(location.id)?.ordinal;
        let regions = driver.memory.regions.lock();
        let found = regions.find(address).map(|(_, region)| &region.backing);
        match found {
            Some(Backing::Mapped(mapped)) => {
                flags.set(match mapped.access_of(driver.ordinal, device) {
                    Access::None => 0,
                    Access::Read => 1,
                    Access::ReadWrite => 3,
                })
            }
            Some(Backing::Alias { .. }) | None => Err(Code::INVALID_VALUE),
            Some(_) => flags.set(3),
        }
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
    fn rights_are_none_reading_or_both() {
        assert_eq!(rights(3), Ok(Access::ReadWrite));
        assert_eq!(rights(2), Err(Code::INVALID_VALUE));
        assert_eq!(rights(-1), Err(Code::INVALID_VALUE));
    }
}
