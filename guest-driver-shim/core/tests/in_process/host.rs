//! A host without a VM: the guest is this process, and the aperture a reserved range of its own
//! addresses.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use causeway_mediator::Client;
use causeway_mediator::host::{Host, PlaceError, RamError, RamRegion, RingPlace};
use causeway_mediator_testing::FakeHost;
use causeway_memory::{Backing, SharedMemory, Window};
use causeway_shim::Access;
use vmm_sys_util::eventfd::EventFd;

/// RAM and doorbells are the fake's; the aperture is real memory.
pub struct ProcessHost {
    pub fake: Arc<FakeHost>,
    pub aperture: Window,
    placed: Mutex<Placed>,
}

#[derive(Default)]
struct Placed {
    next: u64,
    /// Memory, its offset, and bytes, by aperture offset.
    at: BTreeMap<u64, (Backing, u64, u64)>,
}

impl ProcessHost {
    pub fn new(ram_bytes: u64, aperture_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            fake: FakeHost::new(ram_bytes, aperture_bytes).unwrap(),
            aperture: Window::reserve(aperture_bytes).unwrap(),
            placed: Mutex::default(),
        })
    }

    /// Mappings in the aperture.
    pub fn placements(&self) -> usize {
        self.placed.lock().unwrap().at.len()
    }

    fn map(
        &self,
        offset: u64,
        placement: &(Backing, u64, u64),
        access: Access,
    ) -> Result<(), PlaceError> {
        let (backing, from, bytes) = placement;
        let (memory, base) = backing.host().expect("no device here");
        let placed = match access {
            Access::None => self.aperture.clear(offset, *bytes),
            _ => self
                .aperture
                .place(offset, memory, base + from, *bytes, access),
        };
        placed.map_err(|source| PlaceError::Map {
            bytes: *bytes,
            source,
        })
    }
}

impl Host for ProcessHost {
    fn place(
        &self,
        backing: &Backing,
        from: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, PlaceError> {
        let mut placed = self.placed.lock().unwrap();
        // Addresses are not reused: a use after the end of a mapping faults.
        let offset = placed.next;
        if offset + bytes > self.aperture.bytes() {
            return Err(PlaceError::Full { bytes });
        }
        let placement = (backing.clone(), from, bytes);
        self.map(offset, &placement, access)?;
        placed.next = offset + bytes;
        placed.at.insert(offset, placement);
        Ok(offset)
    }

    fn set_access(&self, offset: u64, access: Access) -> Result<(), PlaceError> {
        self.map(offset, &self.placed.lock().unwrap().at[&offset], access)
    }

    fn remove(&self, offset: u64) -> Result<(), PlaceError> {
        let (_, _, bytes) = self.placed.lock().unwrap().at.remove(&offset).unwrap();
        self.aperture
            .clear(offset, bytes)
            .map_err(|source| PlaceError::Map { bytes, source })
    }

    fn ram_regions(&self) -> Vec<RamRegion> {
        self.fake.ram_regions()
    }

    fn ram(&self, address: u64, bytes: u64) -> Result<(Arc<SharedMemory>, u64), RamError> {
        self.fake.ram(address, bytes)
    }

    fn read_ram(&self, address: u64, into: &mut [u8]) -> Result<(), RamError> {
        self.fake.read_ram(address, into)
    }

    fn write_ram(&self, address: u64, from: &[u8]) -> Result<(), RamError> {
        self.fake.write_ram(address, from)
    }

    fn bind_doorbell(&self, index: u32, event: &EventFd, ring: &RingPlace) -> io::Result<()> {
        self.fake.bind_doorbell(index, event, ring)
    }

    fn unbind_doorbell(&self, index: u32, event: &EventFd) {
        self.fake.unbind_doorbell(index, event);
    }

    fn raise(&self, client: Client) {
        self.fake.raise(client);
    }
}
