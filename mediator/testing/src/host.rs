//! A VMM without a VM.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use causeway_mediator::Client;
use causeway_mediator::host::{Host, PlaceError, RamError, RamRegion, RingPlace};
use causeway_memory::{Backing, DeviceMapping, Mapping, MemoryError, PageSize, SharedMemory};
use causeway_protocol::Access;
use parking_lot::Mutex;
use vmm_sys_util::eventfd::EventFd;

/// A placement in the aperture.
#[derive(Clone, Debug)]
pub struct FakePlacement {
    /// The memory.
    pub backing: Backing,
    /// Where in it.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Rights of the guest.
    pub access: Access,
    _mapping: Option<Arc<dyn DeviceMapping>>,
}

/// A host for tests: RAM at guest-physical zero, an aperture that is a table, doorbells rung by
/// hand.
#[derive(Debug)]
pub struct FakeHost {
    ram: Arc<SharedMemory>,
    ram_mapping: Mapping,
    aperture_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    placements: BTreeMap<u64, FakePlacement>,
    doorbells: BTreeMap<u32, EventFd>,
    failing: BTreeSet<&'static str>,
    pending: u64,
}

impl FakeHost {
    /// Creates a host whose guest has `ram_bytes` bytes of RAM and an aperture of `aperture_bytes`
    /// bytes.
    ///
    /// # Errors
    /// [`MemoryError`], if there is no memory for the RAM.
    pub fn new(ram_bytes: u64, aperture_bytes: u64) -> Result<Arc<Self>, MemoryError> {
        let ram = Arc::new(SharedMemory::new("fake ram", ram_bytes, PageSize::Small)?);
        let ram_mapping = ram.map(0, ram_bytes, Access::ReadWrite)?;
        Ok(Arc::new(Self {
            ram,
            ram_mapping,
            aperture_bytes,
            state: Mutex::default(),
        }))
    }

    /// Makes `operation` ("place", "remove", "bind_doorbell") fail, or work again.
    pub fn fail(&self, operation: &'static str, fails: bool) {
        let mut state = self.state.lock();
        if fails {
            state.failing.insert(operation);
        } else {
            state.failing.remove(operation);
        }
    }

    /// Returns the placements in the aperture, by offset.
    pub fn placements(&self) -> BTreeMap<u64, FakePlacement> {
        self.state.lock().placements.clone()
    }

    /// Returns the numbers of the bound doorbells.
    pub fn doorbells(&self) -> Vec<u32> {
        self.state.lock().doorbells.keys().copied().collect()
    }

    /// Whether a client's interrupt is pending. Acknowledges it.
    pub fn take_interrupt(&self, client: Client) -> bool {
        let mut state = self.state.lock();
        let pending = state.pending & client.bit() != 0;
        state.pending &= !client.bit();
        pending
    }

    /// Rings a doorbell, as a guest's store does. False if the doorbell is not bound.
    pub fn ring(&self, index: u32) -> bool {
        let state = self.state.lock();
        let event = state.doorbells.get(&index);
        event.is_some_and(|event| event.write(1).is_ok())
    }

    /// Maps the memory at an aperture offset, as the guest's CPU reaches it; `None` where no host
    /// memory is placed.
    pub fn map(&self, offset: u64) -> Option<Mapping> {
        let placement = self.state.lock().placements.get(&offset).cloned()?;
        let (memory, base) = placement.backing.host()?;
        let start = base + placement.offset;
        memory.map(start, placement.bytes, placement.access).ok()
    }

    /// Returns a mapping of the guest's RAM.
    pub fn ram_mapping(&self) -> &Mapping {
        &self.ram_mapping
    }

    fn failing(&self, operation: &str) -> bool {
        self.state.lock().failing.contains(operation)
    }
}

fn slot_error(offset: u64) -> PlaceError {
    PlaceError::Slot {
        offset,
        source: io::Error::other("the test wants it"),
    }
}

impl Host for FakeHost {
    fn place(
        &self,
        backing: &Backing,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, PlaceError> {
        if self.failing("place") {
            return Err(slot_error(0));
        }
        // As a VMM maps it for its hypervisor.
        let mapping = match backing {
            Backing::Host { .. } => None,
            Backing::Device(memory) => {
                let mapping = memory.map(offset, bytes);
                let mapping = mapping.map_err(|source| PlaceError::Map { bytes, source })?;
                Some(Arc::from(mapping))
            }
        };
        let mut state = self.state.lock();
        let mut free = 0;
        for (start, placement) in &state.placements {
            if start - free >= bytes {
                break;
            }
            free = start + placement.bytes;
        }
        if free + bytes > self.aperture_bytes {
            return Err(PlaceError::Full { bytes });
        }
        let placement = FakePlacement {
            backing: backing.clone(),
            offset,
            bytes,
            access,
            _mapping: mapping,
        };
        state.placements.insert(free, placement);
        Ok(free)
    }

    fn set_access(&self, offset: u64, access: Access) -> Result<(), PlaceError> {
        let mut state = self.state.lock();
        let placement = state.placements.get_mut(&offset);
        placement.ok_or_else(|| slot_error(offset))?.access = access;
        Ok(())
    }

    fn remove(&self, offset: u64) -> Result<(), PlaceError> {
        if self.failing("remove") {
            return Err(slot_error(offset));
        }
        let removed = self.state.lock().placements.remove(&offset);
        removed.map(drop).ok_or_else(|| slot_error(offset))
    }

    fn ram_regions(&self) -> Vec<RamRegion> {
        vec![RamRegion {
            base: 0,
            memory: Arc::clone(&self.ram),
        }]
    }

    fn ram(&self, address: u64, bytes: u64) -> Result<(Arc<SharedMemory>, u64), RamError> {
        match address.checked_add(bytes) {
            Some(end) if end <= self.ram.bytes() => Ok((Arc::clone(&self.ram), address)),
            _ => Err(RamError { address, bytes }),
        }
    }

    fn read_ram(&self, address: u64, into: &mut [u8]) -> Result<(), RamError> {
        let bytes = into.len() as u64;
        let copied = self.ram_mapping.read(address, into);
        copied.map_err(|_| RamError { address, bytes })
    }

    fn write_ram(&self, address: u64, from: &[u8]) -> Result<(), RamError> {
        let bytes = from.len() as u64;
        let copied = self.ram_mapping.write(address, from);
        copied.map_err(|_| RamError { address, bytes })
    }

    fn bind_doorbell(&self, index: u32, event: &EventFd, _: &RingPlace) -> io::Result<()> {
        if self.failing("bind_doorbell") {
            return Err(io::Error::other("the test wants it"));
        }
        let event = event.try_clone()?;
        match self.state.lock().doorbells.insert(index, event) {
            None => Ok(()),
            Some(_) => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
        }
    }

    fn unbind_doorbell(&self, index: u32, _: &EventFd) {
        self.state.lock().doorbells.remove(&index);
    }

    fn raise(&self, client: Client) {
        self.state.lock().pending |= client.bit();
    }
}
