//! A client process, as its session sees it: the process maps its aperture itself, from descriptors
//! that the server sends.
//!
//! Changes of the aperture and of doorbells become events. The process receives them with the reply
//! to its next request, so a revocation by another session takes effect with that request. A
//! hostile process can keep a descriptor, and with it the memory. The descriptor of read-only
//! memory is open for reading only, but all processes belong to one user and can reopen it for
//! writing. So access rights do not stop a hostile process. The server is for development, with one
//! user's own processes.

use std::collections::{BTreeMap, BTreeSet};
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
use parking_lot::Mutex;
use vmm_sys_util::eventfd::EventFd;

/// An event for the client process, and the file descriptor that is sent with the event.
pub type Told = (Event, Option<OwnedFd>);

/// A mapping in the aperture.
struct Placement {
    memory: Arc<SharedMemory>,
    from: u64,
    bytes: u64,
    access: Access,
}

struct State {
    extents: RangeAllocator,
    placements: BTreeMap<u64, Placement>,
    doorbells: BTreeSet<u32>,
    events: Vec<Told>,
}

/// A client process, as its session sees it: an aperture and doorbells.
pub struct ClientHost {
    aperture_bytes: u64,
    state: Mutex<State>,
    usage: Usage,
}

impl ClientHost {
    /// Returns the state for a new client process, whose aperture of `aperture_bytes` bytes is
    /// empty.
    pub fn new(aperture_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            aperture_bytes,
            state: Mutex::new(State {
                extents: RangeAllocator::new(0..aperture_bytes),
                placements: BTreeMap::new(),
                doorbells: BTreeSet::new(),
                events: Vec::new(),
            }),
            usage: Usage::default(),
        })
    }

    /// Returns the size of the aperture in bytes.
    pub const fn aperture_bytes(&self) -> u64 {
        self.aperture_bytes
    }

    /// Returns how much of the aperture is used. This function takes no lock.
    pub fn usage(&self) -> ApertureUse {
        self.usage.of(self.aperture_bytes)
    }

    /// Returns the events that the process has not received yet, and removes them.
    pub fn take_events(&self) -> Vec<Told> {
        std::mem::take(&mut self.state.lock().events)
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

    /// Adds the event for the mapping at `offset`.
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
                reason: String::from(
                    "a process cannot map this memory: use it in a VM (`causeway run`)",
                ),
            },
        })?;
        let mut state = self.state.lock();
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
        let mut state = self.state.lock();
        let placement = state.placements.get_mut(&offset);
        placement.ok_or(PlaceError::Absent { offset })?.access = access;
        state.tell_placement(offset)
    }

    fn remove(&self, offset: u64) -> Result<(), PlaceError> {
        let mut state = self.state.lock();
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
        let mut state = self.state.lock();
        if index >= doorbells::COUNT || state.doorbells.contains(&index) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = borrow(event).try_clone_to_owned()?;
        state.doorbells.insert(index);
        let bind = Event {
            kind: EventKind::Bind as u32,
            argument: index,
            ..Event::default()
        };
        state.events.push((bind, Some(file)));
        Ok(())
    }

    fn unbind_doorbell(&self, index: u32, _: &EventFd) {
        let mut state = self.state.lock();
        if state.doorbells.remove(&index) {
            state.tell(EventKind::Unbind, index, 0, 0);
        }
    }

    /// A process receives events only with the reply to a request. A process that waits polls
    /// memory itself.
    fn raise(&self, _: Client) {}
}

/// Returns the descriptor of `file`, for types that offer only its number.
#[allow(unsafe_code)] // The types of vmm-sys-util have no `AsFd`.
pub fn borrow(file: &impl AsRawFd) -> BorrowedFd<'_> {
    // SAFETY: whatever is borrowed keeps its descriptor open meanwhile.
    unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) }
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
