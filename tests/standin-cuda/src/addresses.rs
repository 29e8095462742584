//! Addresses of devices: reservations, and what is mapped in them. Unified: all devices and the
//! host see the same.
//!
//! A reservation is one of the host's addresses too, without rights, so that no other memory is
//! there, and so that a host that follows a device pointer faults as it should.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

use causeway_mediator::backend::{Memory, Space};
use causeway_protocol::Access;
use causeway_software::Software;

use crate::driver::{Device, Driver};
use crate::error::{Answer, Code};
use crate::physical::{Holder, Physical, Place};

/// Sizes and addresses of memory are multiples of this, as on the GPUs that this stands for.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// Addresses from here on are none of the host's: the engine has the variables of modules there.
pub(crate) const VARIABLES: u64 = 1 << 47;

/// All reservations and mappings.
#[derive(Default)]
pub(crate) struct Addresses {
    reservations: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapped>,
}

/// Memory at an address.
pub(crate) struct Mapped {
    pub(crate) bytes: u64,
    pub(crate) physical: Arc<Physical>,
    /// Handle of the memory, if it was made by `cuMemCreate`.
    pub(crate) handle: usize,
    /// Context of memory made by `cuMemAlloc`.
    pub(crate) context: Option<usize>,
    /// Rights of each device.
    access: Vec<Access>,
    /// Rights of the host.
    host_access: Access,
    /// The memory as each engine has seen it, which kernels under way hold.
    seen: Vec<Weak<dyn Memory>>,
}

impl Mapped {
    /// Rights of a device.
    pub(crate) fn access(&self, device: usize) -> Access {
        self.access[device]
    }

    /// Returns the memory as kernels that began before now hold it.
    pub(crate) fn seen(&self) -> &[Weak<dyn Memory>] {
        &self.seen
    }

    /// Rights of the host.
    pub(crate) fn host_access(&self) -> Access {
        self.host_access
    }
}

impl Addresses {
    /// Reserves addresses, at `hint` if that is free.
    pub(crate) fn reserve(&mut self, bytes: u64, alignment: u64, hint: u64) -> Answer<u64> {
        let alignment = alignment.max(GRANULARITY);
        let hinted = (hint != 0 && hint.is_multiple_of(alignment))
            .then(|| reserve_at(hint, bytes))
            .flatten();
        let start = hinted.or_else(|| reserve_anywhere(bytes, alignment));
        let start = start.ok_or(Code::OUT_OF_MEMORY)?;
        self.reservations.insert(start, bytes);
        Ok(start)
    }

    /// Gives a whole reservation back that nothing is mapped in.
    pub(crate) fn free(&mut self, start: u64, bytes: u64) -> Answer {
        let end = start.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let whole = self.reservations.get(&start) == Some(&bytes);
        if !whole || self.mappings.range(start..end).next().is_some() {
            return Err(Code::INVALID_VALUE);
        }
        self.reservations.remove(&start);
        // SAFETY: a reservation of ours, in which nothing is mapped.
        unsafe { libc::munmap(start as *mut _, bytes as usize) };
        Ok(())
    }

    /// The reservation that holds an address.
    pub(crate) fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (start, bytes) = self.reservations.range(..=address).next_back()?;
        (address - start < *bytes).then_some((*start, *bytes))
    }

    /// Maps memory, for nobody yet.
    pub(crate) fn map(
        &mut self,
        driver: &Driver,
        start: u64,
        bytes: u64,
        (physical, handle, context): (Arc<Physical>, usize, Option<usize>),
    ) -> Answer {
        let end = start.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let (base, reserved) = self.reservation(start).ok_or(Code::INVALID_VALUE)?;
        if end > base + reserved || self.overlaps(start, end) {
            return Err(Code::INVALID_VALUE);
        }
        let mapped = Mapped {
            bytes,
            physical,
            handle,
            context,
            access: vec![Access::None; driver.devices.len()],
            host_access: Access::None,
            seen: Vec::new(),
        };
        self.mappings.insert(start, mapped);
        Ok(())
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        let before = self.mappings.range(..end).next_back();
        before.is_some_and(|(at, mapped)| at + mapped.bytes > start)
    }

    /// Starts of the mappings that make up a range, which holds whole mappings and nothing else.
    pub(crate) fn whole(&self, start: u64, bytes: u64) -> Answer<Vec<u64>> {
        let end = start.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let mut at = start;
        let mut starts = Vec::new();
        while at < end {
            let mapped = self.mappings.get(&at).ok_or(Code::INVALID_VALUE)?;
            starts.push(at);
            at += mapped.bytes;
        }
        if at != end || starts.is_empty() {
            return Err(Code::INVALID_VALUE);
        }
        Ok(starts)
    }

    /// Ends a mapping. Work that began before still has the memory.
    pub(crate) fn unmap(&mut self, driver: &Driver, start: u64) -> Option<Mapped> {
        let mut mapped = self.mappings.remove(&start)?;
        for (index, device) in driver.devices.iter().enumerate() {
            grant(device, start, &mut mapped, index, Access::None);
        }
        if mapped.host_access != Access::None {
            hide(start, mapped.bytes);
        }
        Some(mapped)
    }

    /// Gives a device rights to a mapping, or takes them.
    pub(crate) fn set_access(
        &mut self,
        driver: &Driver,
        start: u64,
        device: usize,
        access: Access,
    ) -> Answer {
        let mapped = self.mappings.get_mut(&start).ok_or(Code::INVALID_VALUE)?;
        grant(&driver.devices[device], start, mapped, device, access);
        Ok(())
    }

    /// Gives the host rights to a mapping of host memory.
    pub(crate) fn set_host_access(&mut self, start: u64, access: Access) -> Answer {
        let mapped = self.mappings.get_mut(&start).ok_or(Code::INVALID_VALUE)?;
        if !matches!(mapped.physical.properties.place, Place::HostNuma(_)) {
            return Err(Code::INVALID_VALUE);
        }
        let placed = mapped.physical.place(start, mapped.bytes, access);
        placed.map_err(|_| Code::OUT_OF_MEMORY)?;
        mapped.host_access = access;
        Ok(())
    }

    /// The mapping that holds an address, and where it begins.
    pub(crate) fn mapping(&self, address: u64) -> Option<(u64, &Mapped)> {
        let (start, mapped) = self.mappings.range(..=address).next_back()?;
        (address - start < mapped.bytes).then_some((*start, mapped))
    }

    /// Whether every byte of a range is mapped, with some right for the device.
    pub(crate) fn covers(&self, address: u64, bytes: u64, device: usize) -> bool {
        let Some(end) = address.checked_add(bytes) else {
            return false;
        };
        let mut at = address;
        while at < end {
            match self.mapping(at) {
                Some((start, mapped)) if mapped.access(device) != Access::None => {
                    at = start + mapped.bytes;
                }
                _ => return false,
            }
        }
        true
    }

    /// Starts of the memory that a context has allocated.
    pub(crate) fn allocated_by(&self, context: usize) -> Vec<u64> {
        let own = self
            .mappings
            .iter()
            .filter(|(_, mapped)| mapped.context == Some(context));
        own.map(|(start, _)| *start).collect()
    }
}

/// Has the engine see a mapping with these rights, or not at all.
fn grant(device: &Device, start: u64, mapped: &mut Mapped, index: usize, access: Access) {
    let before = std::mem::replace(&mut mapped.access[index], access);
    let done = match (before, access) {
        (Access::None, Access::None) => Ok(()),
        (Access::None, _) => {
            let memory = engine_memory(&mapped.physical, mapped.bytes);
            mapped.seen.push(Arc::downgrade(&memory));
            device.space.map_at(start, &memory, 0, mapped.bytes, access)
        }
        (_, Access::None) => device.space.unmap_at(start),
        _ => device.space.set_access(start, access),
    };
    if let Err(e) = done {
        eprintln!("stand-in driver: the engine does not follow a change of access: {e}");
    }
}

fn engine_memory(physical: &Arc<Physical>, bytes: u64) -> Arc<dyn Memory> {
    Software::wrap(physical.view(bytes), Box::new(Holder(Arc::clone(physical))))
}

/// Addresses without rights, exactly there.
fn reserve_at(start: u64, bytes: u64) -> Option<u64> {
    let found = reserve(start, bytes, libc::MAP_FIXED_NOREPLACE).ok()?;
    if found == start {
        return Some(start);
    }
    // SAFETY: just reserved, known to nobody.
    unsafe { libc::munmap(found as *mut _, bytes as usize) };
    None
}

fn reserve_anywhere(bytes: u64, alignment: u64) -> Option<u64> {
    let total = bytes.checked_add(alignment)?;
    let start = reserve(0, total, 0).ok()?;
    let aligned = start.next_multiple_of(alignment);
    for (at, length) in [
        (start, aligned - start),
        (aligned + bytes, start + total - aligned - bytes),
    ] {
        if length != 0 {
            // SAFETY: a part of what was just reserved and is known to nobody.
            unsafe { libc::munmap(at as *mut _, length as usize) };
        }
    }
    Some(aligned)
}

/// Takes what the host sees at a part of a reservation away.
pub(crate) fn hide(start: u64, bytes: u64) {
    if reserve(start, bytes, libc::MAP_FIXED).is_err() {
        eprintln!("stand-in driver: {bytes} bytes at {start:#x} stay visible");
    }
}

fn reserve(start: u64, bytes: u64, extra: i32) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | extra;
    let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: fresh addresses, or (fixed) a part of a reservation of ours.
    let at = unsafe { libc::mmap(start as *mut _, length, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(at as u64)
}
