//! The guest, as its session in the mediator sees it.

use std::io;
use std::sync::Arc;

use causeway_mediator::Client;
use causeway_mediator::host::{Host, PlaceError, RamError, RamRegion, RingPlace};
use causeway_memory::{Backing, SharedMemory};
use causeway_protocol::Access;
use vmm_sys_util::eventfd::EventFd;

use super::{ClientInterrupts, Doorbells};
use crate::aperture::Aperture;
use crate::memory::{self, GuestRam};

/// The parts of one guest that its session in the mediator uses: aperture, doorbells, interrupts
/// and RAM.
pub struct GuestHost {
    /// The guest's aperture, in which its allocations appear.
    pub aperture: Arc<Aperture>,
    /// The guest's doorbells, which wake consumers of its command buffers.
    pub doorbells: Arc<Doorbells>,
    /// The guest's RAM.
    pub ram: Arc<GuestRam>,
    /// The interrupts of the guest's clients.
    pub interrupts: ClientInterrupts,
}

debug_by_name!(GuestHost);

impl GuestHost {
    /// Returns the parts of a guest: the given aperture, doorbells and RAM, and interrupts that are
    /// not connected to an interrupt controller yet.
    pub fn new(aperture: Arc<Aperture>, doorbells: Arc<Doorbells>, ram: Arc<GuestRam>) -> Self {
        Self {
            aperture,
            doorbells,
            ram,
            interrupts: ClientInterrupts::default(),
        }
    }
}

impl Host for GuestHost {
    fn place(
        &self,
        backing: &Backing,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, PlaceError> {
        self.aperture.place(backing, offset, bytes, access)
    }

    fn set_access(&self, offset: u64, access: Access) -> Result<(), PlaceError> {
        self.aperture.set_access(offset, access)
    }

    fn remove(&self, offset: u64) -> Result<(), PlaceError> {
        self.aperture.remove(offset)
    }

    fn ram_regions(&self) -> Vec<RamRegion> {
        let regions = self.ram.regions();
        let region = |r: &memory::RamRegion| RamRegion {
            base: r.base(),
            memory: Arc::clone(r.memory()),
        };
        regions.map(region).collect()
    }

    fn ram(&self, address: u64, bytes: u64) -> Result<(Arc<SharedMemory>, u64), RamError> {
        self.ram.object(address, bytes)
    }

    fn read_ram(&self, address: u64, into: &mut [u8]) -> Result<(), RamError> {
        self.ram.read(address, into)
    }

    fn write_ram(&self, address: u64, from: &[u8]) -> Result<(), RamError> {
        self.ram.write(address, from)
    }

    fn bind_doorbell(&self, index: u32, event: &EventFd, _: &RingPlace) -> io::Result<()> {
        self.doorbells.bind(index, event)
    }

    fn unbind_doorbell(&self, index: u32, _event: &EventFd) {
        self.doorbells.unbind(index);
    }

    fn raise(&self, client: Client) {
        self.interrupts.raise(client);
    }
}

#[cfg(test)]
mod tests {
    use causeway_memory::PageSize;

    use super::*;
    use crate::hypervisor::fake::Fake;

    const RAM_BYTES: u64 = 8 << 20;

    fn host() -> GuestHost {
        let fake = Arc::new(Fake::default());
        let aperture = Aperture::new(64 << 20, Arc::clone(&fake) as _).unwrap();
        let ram = GuestRam::new("test", RAM_BYTES, false).unwrap();
        let doorbells = Arc::new(Doorbells::new(fake));
        GuestHost::new(Arc::new(aperture), doorbells, Arc::new(ram))
    }

    #[test]
    fn the_session_reads_and_writes_the_guests_ram() {
        let host = host();
        let ram = &host.ram;
        let mut found = [0; 8];
        host.write_ram(0x1000, b"causeway").unwrap();
        ram.read(0x1000, &mut found).unwrap();
        assert_eq!(&found, b"causeway");
        ram.write(0x2000, b"drawings").unwrap();
        host.read_ram(0x2000, &mut found).unwrap();
        assert_eq!(&found, b"drawings");
        host.write_ram(RAM_BYTES - 4, &found).unwrap_err();
        host.read_ram(RAM_BYTES - 4, &mut found).unwrap_err();
        let regions = host.ram_regions();
        let places: Vec<(u64, u64)> = regions.iter().map(|r| (r.base, r.memory.bytes())).collect();
        assert_eq!(places, [(0, RAM_BYTES)]);
    }

    #[test]
    fn the_session_takes_away_what_it_gave() {
        let host = host();
        let memory = Arc::new(SharedMemory::new("test", 4096, PageSize::Small).unwrap());
        let place = RingPlace {
            memory: Arc::clone(&memory),
            offset: 0,
        };
        let at = host.place(&memory.into(), 0, 4096, Access::Read).unwrap();
        assert_eq!(host.aperture.usage().placements, 1);
        host.set_access(at, Access::ReadWrite).unwrap();
        let leased = host.aperture.object(at, 4096).unwrap();
        assert_eq!(leased.access, Access::ReadWrite);
        drop(leased);
        host.remove(at).unwrap();
        assert_eq!(host.aperture.usage().placements, 0);

        let event = EventFd::new(libc::EFD_NONBLOCK).unwrap();
        host.bind_doorbell(3, &event, &place).unwrap();
        assert!(host.doorbells.ring(3));
        host.unbind_doorbell(3, &event);
        assert!(!host.doorbells.ring(3));
    }
}
