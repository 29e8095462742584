//! A client process, as its session sees it: an aperture that the process maps for itself, by descriptors sent to it.
//!
//! What happens to aperture and doorbells is kept as events, which go to the process with the reply to its next request. So a
//! revocation by another session takes effect there with that request; and as with any descriptor, a process that does not
//! want to let go of memory keeps it. The descriptor of memory that may only be read is open for reading only; but a process of
//! the same user, and there are no others, can open it anew. So access rights bind those who keep to them. This is for
//! development, by one person's own processes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use causeway_mediator::Client;
use causeway_mediator::host::{Host, PlaceError, RamError, RamRegion, RingPlace};
use causeway_memory::{Backing, MemoryError, RangeAllocator, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::registers::doorbells;
use causeway_protocol::socket::{Event, EventKind};
use causeway_vmm::aperture::{ApertureUse, PLACEMENTS_MAX, Usage};
use parking_lot::{Mutex, MutexGuard};
use vmm_sys_util::eventfd::EventFd;

/// An event, and the descriptor that goes with it.
pub type Told = (Event, Option<OwnedFd>);

/// Something in the aperture.
struct Placement {
    memory: Arc<SharedMemory>,
    from: u64,
    bytes: u64,
    access: Access,
}

struct State {
    extents: RangeAllocator,
    placements: BTreeMap<u64, Placement>,
    doorbells: BTreeMap<u32, ()>,
    events: Vec<Told>,
}

/// The client process of one connection.
pub struct ClientHost {
    aperture_bytes: u64,
    state: Mutex<State>,
    usage: Usage,
}

impl ClientHost {
    /// A process that has mapped nothing, with room for `aperture_bytes` bytes.
    pub fn new(aperture_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            aperture_bytes,
            state: Mutex::new(State {
                extents: RangeAllocator::new(0..aperture_bytes),
                placements: BTreeMap::new(),
                doorbells: BTreeMap::new(),
                events: Vec::new(),
            }),
            usage: Usage::default(),
        })
    }

    /// Size of the aperture in bytes.
    pub const fn aperture_bytes(&self) -> u64 {
        self.aperture_bytes
    }

    /// How much of the aperture is used. Takes no lock.
    pub fn usage(&self) -> ApertureUse {
        self.usage.of(self.aperture_bytes)
    }

    /// What has happened since the last call.
    pub fn take_events(&self) -> Vec<Told> {
        std::mem::take(&mut self.state().events)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn tell(&mut self, kind: EventKind, argument: u32, offset: u64, bytes: u64) {
        let event = Event {
            kind: kind as u32,
            argument,
            offset,
            bytes,
            from: 0,
        };
        self.events.push((event, None));
    }

    /// Tells of what is at `offset`.
    fn tell_placement(&mut self, offset: u64) -> Result<(), PlaceError> {
        let absent = PlaceError::Absent { offset };
        let placement = self.placements.get(&offset).ok_or(absent)?;
        let bytes = placement.bytes;
        if placement.access == Access::None {
            self.tell(EventKind::Remove, 0, offset, bytes);
            return Ok(());
        }
        let file = placement
            .memory
            .hand_out(placement.access)
            .map_err(|source| PlaceError::Map {
                bytes,
                source: MemoryError::Map { bytes, source },
            })?;
        let event = Event {
            kind: EventKind::Place as u32,
            argument: placement.access.wire(),
            offset,
            bytes,
            from: placement.from,
        };
        self.events.push((event, Some(file)));
        Ok(())
    }
}

impl Host for ClientHost {
    fn place(
        &self,
        backing: &Backing,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, PlaceError> {
        let (memory, base) = backing.host().ok_or_else(|| PlaceError::Map {
            bytes,
            source: MemoryError::Device {
                bytes,
                reason: String::from("a process cannot map this memory: run a VM instead"),
            },
        })?;
        let mut state = self.state();
        if state.placements.len() >= PLACEMENTS_MAX {
            return Err(PlaceError::Full { bytes });
        }
        let room = state.extents.take_by_size(bytes);
        let at = room.ok_or(PlaceError::Full { bytes })?;
        let placement = Placement {
            memory: Arc::clone(memory),
            from: base + offset,
            bytes,
            access,
        };
        state.placements.insert(at, placement);
        if let Err(e) = state.tell_placement(at) {
            state.placements.remove(&at);
            state.extents.give_back(at, bytes);
            return Err(e);
        }
        self.usage.placed(bytes);
        Ok(at)
    }

    fn set_access(&self, offset: u64, access: Access) -> Result<(), PlaceError> {
        let mut state = self.state();
        let placement = state.placements.get_mut(&offset);
        placement.ok_or(PlaceError::Absent { offset })?.access = access;
        state.tell_placement(offset)
    }

    fn remove(&self, offset: u64) -> Result<(), PlaceError> {
        let mut state = self.state();
        let removed = state.placements.remove(&offset);
        let Placement { bytes, .. } = removed.ok_or(PlaceError::Absent { offset })?;
        state.extents.give_back(offset, bytes);
        self.usage.removed(bytes);
        state.tell(EventKind::Remove, 0, offset, bytes);
        Ok(())
    }

    fn ram_regions(&self) -> Vec<RamRegion> {
        Vec::new()
    }

    fn ram(&self, address: u64, bytes: u64) -> Result<(Arc<SharedMemory>, u64), RamError> {
        Err(RamError { address, bytes })
    }

    fn read_ram(&self, address: u64, into: &mut [u8]) -> Result<(), RamError> {
        let bytes = into.len() as u64;
        Err(RamError { address, bytes })
    }

    fn write_ram(&self, address: u64, from: &[u8]) -> Result<(), RamError> {
        let bytes = from.len() as u64;
        Err(RamError { address, bytes })
    }

    fn bind_doorbell(&self, index: u32, event: &EventFd, _: &RingPlace) -> io::Result<()> {
        let mut state = self.state();
        if index >= doorbells::COUNT || state.doorbells.contains_key(&index) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = descriptor(event).try_clone_to_owned()?;
        state.doorbells.insert(index, ());
        let bind = Event {
            kind: EventKind::Bind as u32,
            argument: index,
            ..Event::default()
        };
        state.events.push((bind, Some(file)));
        Ok(())
    }

    fn unbind_doorbell(&self, index: u32, _: &EventFd) {
        let mut state = self.state();
        if state.doorbells.remove(&index).is_some() {
            state.tell(EventKind::Unbind, index, 0, 0);
        }
    }

    /// A process is told of events with the reply to a request only: one that waits looks by itself.
    fn raise(&self, _: Client) {}
}

/// The descriptor of an event.
#[allow(unsafe_code)] // The type gives only the number.
fn descriptor(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the event keeps its descriptor open for as long as it is borrowed.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_memory::PageSize;

    const PAGE: u64 = 4096;

    fn kinds(host: &ClientHost) -> Vec<(Option<EventKind>, bool)> {
        let events = host.take_events().into_iter();
        events
            .map(|(event, file)| (EventKind::from_wire(event.kind), file.is_some()))
            .collect()
    }

    #[test]
    fn every_change_of_the_aperture_is_told_once_and_room_is_used_again() {
        let host = ClientHost::new(16 * PAGE);
        let memory = Arc::new(SharedMemory::new("test", 4 * PAGE, PageSize::Small).unwrap());
        let backing = Backing::from(memory);
        let first = host
            .place(&backing, 0, 4 * PAGE, Access::ReadWrite)
            .unwrap();
        host.set_access(first, Access::None).unwrap();
        host.set_access(first, Access::Read).unwrap();
        host.remove(first).unwrap();
        let placed = (Some(EventKind::Place), true);
        let removed = (Some(EventKind::Remove), false);
        assert_eq!(kinds(&host), [placed, removed, placed, removed]);
        assert!(kinds(&host).is_empty());
        for _ in 0..4 {
            host.place(&backing, 0, 4 * PAGE, Access::Read).unwrap();
        }
        let full = host.place(&backing, 0, PAGE, Access::Read);
        assert!(matches!(full, Err(PlaceError::Full { .. })));
        let absent = host.remove(PAGE);
        assert!(matches!(absent, Err(PlaceError::Absent { offset: PAGE })));
    }
    #[test]
    fn the_descriptor_of_memory_to_be_read_cannot_write() {
        let host = ClientHost::new(16 * PAGE);
        let memory = Arc::new(SharedMemory::new("test", PAGE, PageSize::Small).unwrap());
        let at = host
            .place(&Backing::from(Arc::clone(&memory)), 0, PAGE, Access::Read)
            .unwrap();
        host.set_access(at, Access::ReadWrite).unwrap();
        let writes = host.take_events().into_iter().map(|(event, file)| {
            let written = rustix::io::pwrite(file.unwrap(), b"x", 0);
            (Access::from_wire(event.argument), written.is_ok())
        });
        assert_eq!(
            writes.collect::<Vec<_>>(),
            [(Some(Access::Read), false), (Some(Access::ReadWrite), true)]
        );
        assert!(memory.is_handed_out());
    }
}
