//! The guest of a worker: checks and does what the worker asks for it, and removes all of it when
//! the worker ends.
//!
//! Lock order: the resources of the guest are locked before what a [`Host`] locks inside.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use causeway_mediator::Client;
use causeway_mediator::host::{Host, PlaceError, RingPlace};
use causeway_memory::{Backing, MemoryError, PAGE_BYTES, SharedMemory, check_range};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use causeway_protocol::registers::doorbells::COUNT;
use causeway_protocol::ring::{FAULT_STATUS, HEADER_BYTES};
use parking_lot::Mutex;
use rustix::io::Errno;
use vmm_sys_util::eventfd::EventFd;

use super::shared::ImportDevice;
use crate::wire::{
    Answer, BindDoorbell, ForClient, Outcome, Place, Placed, Remove, SetAccess, UnbindDoorbell,
    page_size_from_wire,
};
use crate::{DeviceUuid, event};

/// Number of memory objects from which the map is searched for those that no longer exist.
const OBJECTS_SWEEP: usize = 64;

/// The guest of one worker, until that worker ends.
pub(super) struct Guest {
    host: Arc<dyn Host>,
    import_device: Option<(Arc<ImportDevice>, DeviceUuid)>,
    resources: Mutex<Resources>,
}

#[derive(Default)]
struct Resources {
    /// Whether the worker has ended: nothing may be placed or bound.
    ended: bool,
    placed: BTreeSet<u64>,
    bound: HashMap<u32, Doorbell>,
    /// Memory objects in use, by device and inode: each takes one descriptor, however often it is
    /// placed.
    objects: HashMap<(u64, u64), Weak<SharedMemory>>,
}

/// A bound doorbell.
struct Doorbell {
    event: EventFd,
    /// The command buffer whose consumer it wakes.
    ring: RingPlace,
}

impl Guest {
    /// Returns the record of what a worker places and binds in the guest of the VMM `host`, empty
    /// at first. `import_device` imports device memory for the aperture; its UUID names the GPU
    /// that the worker uses.
    pub fn new(
        host: Arc<dyn Host>,
        import_device: Option<(Arc<ImportDevice>, DeviceUuid)>,
    ) -> Self {
        Self {
            host,
            import_device,
            resources: Mutex::default(),
        }
    }

    pub fn place(&self, request: &Place, file: OwnedFd) -> Result<Answer, Refused> {
        let access = Access::from_wire(request.access.into()).ok_or(Errno::INVAL)?;
        let mut resources = self.resources.lock();
        if resources.ended {
            return Err(Errno::CANCELED.into());
        }
        let bytes = request.bytes;
        let fail = |source| PlaceError::Map { bytes, source };
        let backing = self.backing(&mut resources, request, file).map_err(fail)?;
        check_pages(request, backing.bytes()).map_err(fail)?;
        let offset = self.host.place(&backing, request.offset, bytes, access)?;
        resources.placed.insert(offset);
        let mut answer = done();
        answer.value = offset;
        Ok(answer)
    }

    pub fn set_access(&self, request: &SetAccess) -> Result<Answer, Refused> {
        let access = Access::from_wire(request.access).ok_or(Errno::INVAL)?;
        let resources = self.resources.lock();
        resources.check_placed(request.offset)?;
        self.host.set_access(request.offset, access)?;
        Ok(done())
    }

    pub fn remove(&self, request: &Remove) -> Result<Answer, Refused> {
        let mut resources = self.resources.lock();
        resources.check_placed(request.offset)?;
        self.host.remove(request.offset)?;
        resources.placed.remove(&request.offset);
        Ok(done())
    }

    pub fn bind_doorbell(
        &self,
        request: &BindDoorbell,
        event: OwnedFd,
        ring: OwnedFd,
    ) -> Result<Answer, Refused> {
        let index = request.index;
        let event = event::adopt(event).filter(|_| index < COUNT);
        let event = event.ok_or(Errno::INVAL)?;
        let mut resources = self.resources.lock();
        let memory = resources.object(ring, 0).map_err(|_| Errno::INVAL)?;
        let offset = request.ring_offset;
        let ring = RingPlace { memory, offset };
        if resources.ended || resources.bound.contains_key(&index) {
            return Err(Errno::BUSY.into());
        }
        if let Err(error) = self.host.bind_doorbell(index, &event, &ring) {
            log::debug!("cannot bind doorbell {index}: {error}");
            return Err(Refused::new(Outcome::Slot, error.raw_os_error()));
        }
        resources.bound.insert(index, Doorbell { event, ring });
        Ok(done())
    }

    pub fn unbind_doorbell(&self, request: &UnbindDoorbell) -> Answer {
        let mut resources = self.resources.lock();
        if let Some(bound) = resources.bound.remove(&request.index) {
            self.host.unbind_doorbell(request.index, &bound.event);
        }
        done()
    }

    /// Raises the interrupt of the client that `request` names. Fails with `EINVAL` if there is no
    /// such client or the worker has ended.
    pub fn raise(&self, request: &ForClient) -> Result<Answer, Refused> {
        let client = Client::new(request.client).filter(|_| !self.resources.lock().ended);
        self.host.raise(client.ok_or(Errno::INVAL)?);
        Ok(done())
    }

    /// Writes the status `DeviceLost` into the header of every command buffer of the worker's
    /// session, as a consumer does when the session is lost. A guest that polls a fence also checks
    /// this status, and so stops waiting.
    pub fn mark_lost(&self) {
        let lost = u64::from(Status::DeviceLost as u32).to_ne_bytes();
        for bound in self.resources.lock().bound.values() {
            let RingPlace { memory, offset } = &bound.ring;
            let within = offset.checked_add(HEADER_BYTES);
            if within.is_none_or(|end| end > memory.bytes()) {
                continue;
            }
            // Not through a mapping: the worker may have truncated the object.
            let at = offset + FAULT_STATUS as u64;
            if let Err(e) = rustix::io::pwrite(memory.file(), &lost, at) {
                log::debug!("cannot write a fault status into a command buffer: {e}");
            }
        }
    }

    /// Removes all memory that the worker has placed in the aperture, and unbinds all doorbells
    /// that it has bound. Later requests to place or bind fail.
    pub fn end(&self) {
        let mut resources = self.resources.lock();
        resources.ended = true;
        for offset in std::mem::take(&mut resources.placed) {
            if let Err(error) = self.host.remove(offset) {
                log::error!(
                    "cannot remove memory of an ended worker process from its VM's aperture, so \
                     the guest may still access this memory: {error}"
                );
            }
        }
        for (index, bound) in std::mem::take(&mut resources.bound) {
            self.host.unbind_doorbell(index, &bound.event);
        }
    }

    /// Returns the memory behind the descriptor of a request.
    fn backing(
        &self,
        resources: &mut Resources,
        request: &Place,
        file: OwnedFd,
    ) -> Result<Backing, MemoryError> {
        if request.kind == Placed::Host as u16 {
            return Ok(resources.object(file, request.pages)?.into());
        }
        let reason = |reason: &str| MemoryError::Device {
            bytes: request.bytes,
            reason: reason.to_owned(),
        };
        let (import, device) = self
            .import_device
            .as_ref()
            .filter(|_| request.kind == Placed::Device as u16)
            .ok_or_else(|| reason("this VMM was not set up to map device memory"))?;
        // A driver may believe what it is told about a size.
        import(*device, file, request.memory_bytes).map(Backing::Device)
    }
}

impl Resources {
    /// Refuses an aperture offset at which the worker has placed nothing.
    fn check_placed(&self, offset: u64) -> Result<(), Refused> {
        match self.placed.contains(&offset) {
            true => Ok(()),
            false => Err(Refused(Answer::new(Outcome::Absent as u32))),
        }
    }

    /// Returns the memory object behind a descriptor; the one in use, if it is known already.
    fn object(&mut self, file: OwnedFd, pages: u32) -> Result<Arc<SharedMemory>, MemoryError> {
        let memory = SharedMemory::adopt(file, page_size_from_wire(pages))?;
        let status = rustix::fs::fstat(memory.file())
            .map_err(|e| MemoryError::Adopt { source: e.into() })?;
        let key = (status.st_dev, status.st_ino);
        if let Some(known) = self.objects.get(&key).and_then(Weak::upgrade)
            && known.bytes() == memory.bytes()
        {
            return Ok(known);
        }
        if self.objects.len() >= OBJECTS_SWEEP && self.objects.len().is_power_of_two() {
            self.objects.retain(|_, memory| memory.strong_count() != 0);
        }
        let memory = Arc::new(memory);
        self.objects.insert(key, Arc::downgrade(&memory));
        Ok(memory)
    }
}

/// Refuses what is not a non-empty range of whole pages of memory of `size` bytes.
fn check_pages(request: &Place, size: u64) -> Result<(), MemoryError> {
    let (offset, bytes) = (request.offset, request.bytes);
    check_range(offset, bytes, size)?;
    match (offset | bytes).is_multiple_of(PAGE_BYTES) {
        true => Ok(()),
        false => Err(MemoryError::Range {
            offset,
            bytes,
            size,
        }),
    }
}

/// The answer to a call that was refused or failed.
pub(super) struct Refused(pub Answer);

impl Refused {
    fn new(outcome: Outcome, errno: Option<i32>) -> Self {
        let mut answer = Answer::new(outcome as u32);
        let errno = errno.unwrap_or(Errno::IO.raw_os_error());
        answer.errno = errno.unsigned_abs();
        Self(answer)
    }
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::new(Outcome::Slot, Some(error.raw_os_error()))
    }
}

impl From<PlaceError> for Refused {
    fn from(error: PlaceError) -> Self {
        log::debug!("aperture: {error}");
        let (outcome, errno) = match &error {
            PlaceError::Full { .. } => (Outcome::Full, None),
            PlaceError::Map { source, .. } => (Outcome::Map, errno_of(source)),
            PlaceError::Slot { source, .. } => (Outcome::Slot, source.raw_os_error()),
            PlaceError::Absent { .. } => (Outcome::Absent, None),
        };
        Self::new(outcome, errno)
    }
}

fn errno_of(error: &MemoryError) -> Option<i32> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<io::Error>()?.raw_os_error()
}

fn done() -> Answer {
    Answer::new(Outcome::Done as u32)
}
