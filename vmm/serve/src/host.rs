//! A client process, as its session sees it: the process maps its aperture itself, from descriptors
//! that the server sends.
//!
//! Changes of the aperture and of doorbells become events. The process receives them with the reply
//! to its next request, so a revocation by another session takes effect with that request. A
//! hostile process can keep a descriptor, and with it the memory. The descriptor of read-only
//! memory is open for reading only, but all processes belong to one user and can reopen it for
//! writing. So access rights do not stop a hostile process. The server is for development, with one
//! user's own processes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use causeway_mediator::Client;
use causeway_mediator::host::{Host, PlaceError, RamError, RamRegion, RingPlace};
use causeway_memory::{Backing, MemoryError, RangeAllocator, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::registers::doorbells;
use causeway_protocol::socket::{Event, EventKind};
use causeway_vmm::aperture::{ApertureUse, PLACEMENTS_MAX, Usage};
use parking_lot::Mutex;
use vmm_sys_util::eventfd::EventFd;

/// Number of descriptors that wait from which those are searched for that wait no longer.
const SWEEP: usize = 64;

/// An event for the client process, and the file descriptor that is sent with the event.
pub type Told = (Event, Option<Arc<OwnedFd>>);

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
    /// Not yet sent. A process that reads no replies cannot make them hold many descriptors: a
    /// placement has at most one that is sent with one, and those of the same memory share it.
    events: Vec<Told>,
    files: Files,
}

/// Descriptors that wait to be sent, by the address of the memory object and the rights.
#[derive(Default)]
struct Files(HashMap<(usize, Access), Waiting>);

/// A descriptor that waits to be sent. While this exists, no other memory has its address.
struct Waiting {
    _memory: Weak<SharedMemory>,
    file: Weak<OwnedFd>,
}

/// What a session needs of its client process: the process's aperture and doorbells.
pub struct ClientHost {
    aperture_bytes: u64,
    state: Mutex<State>,
    usage: Usage,
}

impl ClientHost {
    /// Returns the state for a new client process. Its aperture has `aperture_bytes` bytes and no
    /// mappings.
    pub fn new(aperture_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            aperture_bytes,
            state: Mutex::new(State {
                extents: RangeAllocator::new(0..aperture_bytes),
                placements: BTreeMap::new(),
                doorbells: BTreeSet::new(),
                events: Vec::new(),
                files: Files::default(),
            }),
            usage: Usage::default(),
        })
    }

    /// Returns the size of the aperture in bytes.
    pub const fn aperture_bytes(&self) -> u64 {
        self.aperture_bytes
    }

    /// Returns how much of the aperture is used. This function takes no lock, so it never waits.
    pub fn usage(&self) -> ApertureUse {
        self.usage.of(self.aperture_bytes)
    }

    /// Returns the events that the process has not received yet, and removes them from the list of
    /// events to send.
    pub fn take_events(&self) -> Vec<Told> {
        let mut state = self.state.lock();
        state.files.0.clear();
        std::mem::take(&mut state.events)
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

    /// Removes the events within a range that have not been sent: one follows that is for the whole
    /// range.
    fn supersede(&mut self, offset: u64, bytes: u64) {
        let kinds = [EventKind::Place, EventKind::Remove].map(|kind| kind as u32);
        let within =
            |event: &Event| event.offset >= offset && event.offset + event.bytes <= offset + bytes;
        self.events
            .retain(|(event, _)| !kinds.contains(&event.kind) || !within(event));
    }

    /// Adds the event for the mapping at `offset`.
    fn tell_placement(&mut self, offset: u64) -> Result<(), PlaceError> {
        let absent = PlaceError::Absent { offset };
        let placement = self.placements.get(&offset).ok_or(absent)?;
        let bytes = placement.bytes;
        if placement.access == Access::None {
            self.supersede(offset, bytes);
            self.tell(EventKind::Remove, 0, offset, bytes);
            return Ok(());
        }
        let file = self.files.of(&placement.memory, placement.access);
        let file = file.map_err(|source| PlaceError::Map {
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
        self.supersede(offset, bytes);
        self.events.push((event, Some(file)));
        Ok(())
    }
}

impl Files {
    /// Returns a descriptor of `memory` with these rights; one that waits already, if there is one.
    fn of(&mut self, memory: &Arc<SharedMemory>, access: Access) -> io::Result<Arc<OwnedFd>> {
        let key = (Arc::as_ptr(memory).addr(), access);
        if let Some(file) = self.0.get(&key).and_then(|it| it.file.upgrade()) {
            return Ok(file);
        }
        let file = Arc::new(memory.hand_out(access)?);
        if self.0.len() >= SWEEP && self.0.len().is_power_of_two() {
            self.0.retain(|_, it| it.file.strong_count() != 0);
        }
        let waiting = Waiting {
            _memory: Arc::downgrade(memory),
            file: Arc::downgrade(&file),
        };
        self.0.insert(key, waiting);
        Ok(file)
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
        let placement = placement.ok_or(PlaceError::Absent { offset })?;
        let before = std::mem::replace(&mut placement.access, access);
        let told = state.tell_placement(offset);
        // Without a descriptor to tell of fewer rights, the process loses all of them.
        if told.is_err() && before.allows(access) {
            if let Some(placement) = state.placements.get_mut(&offset) {
                placement.access = Access::None;
            }
            return state.tell_placement(offset);
        }
        told
    }

    fn remove(&self, offset: u64) -> Result<(), PlaceError> {
        let mut state = self.state.lock();
        let removed = state.placements.remove(&offset);
        let Placement { bytes, .. } = removed.ok_or(PlaceError::Absent { offset })?;
        state.extents.give_back(offset, bytes);
        self.usage.removed(bytes);
        state.supersede(offset, bytes);
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
        state.events.push((bind, Some(Arc::new(file))));
        Ok(())
    }

    fn unbind_doorbell(&self, index: u32, _: &EventFd) {
        let mut state = self.state.lock();
        if state.doorbells.remove(&index) {
            let kinds = [EventKind::Bind, EventKind::Unbind].map(|kind| kind as u32);
            state
                .events
                .retain(|(event, _)| event.argument != index || !kinds.contains(&event.kind));
            state.tell(EventKind::Unbind, index, 0, 0);
        }
    }

    /// A process receives events only with the reply to a request. A process that waits polls
    /// memory itself.
    fn raise(&self, _: Client) {}
}

/// Returns the file descriptor of `file` as a borrowed object, for types that offer only its
/// number.
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
        let placed = (Some(EventKind::Place), true);
        let removed = (Some(EventKind::Remove), false);
        assert_eq!(kinds(&host), [placed]);
        assert!(kinds(&host).is_empty());
        for (access, told) in [(Access::None, removed), (Access::Read, placed)] {
            host.set_access(first, access).unwrap();
            assert_eq!(kinds(&host), [told]);
        }
        host.remove(first).unwrap();
        assert_eq!(kinds(&host), [removed]);
        for _ in 0..4 {
            host.place(&backing, 0, 4 * PAGE, Access::Read).unwrap();
        }
        let full = host.place(&backing, 0, PAGE, Access::Read);
        assert!(matches!(full, Err(PlaceError::Full { .. })));
        let absent = host.remove(PAGE);
        assert!(matches!(absent, Err(PlaceError::Absent { offset: PAGE })));
    }

    #[test]
    fn a_process_that_reads_nothing_makes_few_descriptors_wait() {
        let host = ClientHost::new(4096 * PAGE);
        let memory = Arc::new(SharedMemory::new("test", PAGE, PageSize::Small).unwrap());
        let backing = Backing::from(memory);
        let event = EventFd::new(0).unwrap();
        let ring = RingPlace {
            memory: Arc::new(SharedMemory::new("ring", PAGE, PageSize::Small).unwrap()),
            offset: 0,
        };
        let place = || host.place(&backing, 0, PAGE, Access::ReadWrite).unwrap();
        let first = place();
        for _ in 0..1000 {
            place();
            for access in [Access::Read, Access::None, Access::ReadWrite] {
                host.set_access(first, access).unwrap();
            }
            let gone = place();
            host.remove(gone).unwrap();
            host.bind_doorbell(0, &event, &ring).unwrap();
            host.unbind_doorbell(0, &event);
        }
        let events = host.take_events();
        let files = || events.iter().filter_map(|(_, file)| file.as_ref());
        let numbers: BTreeSet<i32> = files().map(|file| file.as_raw_fd()).collect();
        assert_eq!((files().count(), numbers.len()), (1001, 1));
        assert!(events.len() < 1010, "{}", events.len());
        let last = events.iter().rfind(|(event, _)| event.offset == first);
        let (last, _) = last.unwrap();
        assert_eq!(last.argument, Access::ReadWrite.wire());
    }

    #[test]
    fn the_descriptor_of_memory_to_be_read_cannot_write() {
        let host = ClientHost::new(16 * PAGE);
        let memory = Arc::new(SharedMemory::new("test", PAGE, PageSize::Small).unwrap());
        let at = host
            .place(&Backing::from(Arc::clone(&memory)), 0, PAGE, Access::Read)
            .unwrap();
        let mut events = host.take_events();
        host.set_access(at, Access::ReadWrite).unwrap();
        events.extend(host.take_events());
        let writes = events.into_iter().map(|(event, file)| {
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
