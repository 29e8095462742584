//! The guest of a worker: checks and does what the worker asks for it, and removes all of it when
//! the worker ends.
//!
//! What a worker says is not believed: which memory object a descriptor stands for, and which
//! worker has exported it, is what the VMM has seen itself.
//!
//! Lock order: the resources of the guest are locked before the locks of a [`Host`], and before the
//! table of exports. No driver is called with them locked: it may not come back, and the end of the
//! worker takes the lock.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_mediator::host::{Host, PlaceError, RingPlace};
use causeway_mediator::{Client, LiveLimits};
use causeway_memory::{Backing, MemoryError, PAGE_BYTES, check_range};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use causeway_protocol::registers::doorbells::COUNT;
use causeway_protocol::ring::{FAULT_STATUS, HEADER_BYTES};
use parking_lot::Mutex;
use rustix::io::Errno;
use vmm_sys_util::eventfd::EventFd;

use super::broker::{Broker, Rights};
use super::mapped::MappedDevice;
use super::objects::{ObjectKey, Objects, Overdraft, leave_reserve};
use super::refused::Refused;
use super::shared::ImportDevice;
use crate::wire::{
    Answer, BindDoorbell, ForClient, Outcome, Place, Placed, Remove, SetAccess, UnbindDoorbell,
};
use crate::{DeviceUuid, event};

/// The guest of one worker, until that worker ends.
pub(super) struct Guest {
    host: Arc<dyn Host>,
    import_device: Option<(Arc<ImportDevice>, DeviceUuid)>,
    broker: Arc<Broker>,
    /// Number of the worker.
    worker: u64,
    /// The guest's RAM, which is nobody's memory but its own.
    ram: Vec<ObjectKey>,
    resources: Mutex<Resources>,
}

struct Resources {
    /// Whether the worker has ended: nothing may be placed or bound.
    ended: bool,
    placed: BTreeMap<u64, Placement>,
    bound: HashMap<u32, Doorbell>,
    objects: Objects,
}

/// Memory that is placed in the aperture.
struct Placement {
    /// `None` for memory of a device.
    object: Option<ObjectKey>,
    /// Memory of a device, which is dropped when the resources are not locked.
    _device: Option<Arc<MappedDevice>>,
    access: Access,
}

/// A bound doorbell.
struct Doorbell {
    event: EventFd,
    /// The command buffer whose consumer it wakes.
    ring: RingPlace,
    object: ObjectKey,
}

/// What a worker has shown to be placed.
enum Shown {
    /// A memory object of the host.
    Host(OwnedFd),
    /// Memory of a device, which the driver has mapped.
    Device(Arc<MappedDevice>),
}

impl Guest {
    /// Returns the record of what worker number `worker` places and binds in the guest of the VMM
    /// `host`, empty at first. `import_device` imports device memory for the aperture; its UUID
    /// names the GPU that the worker uses. `limits` are those of the worker's session.
    pub fn new(
        host: Arc<dyn Host>,
        import_device: Option<(Arc<ImportDevice>, DeviceUuid)>,
        (broker, worker): (Arc<Broker>, u64),
        limits: Arc<LiveLimits>,
    ) -> Self {
        let regions = host.ram_regions();
        let ram = regions
            .iter()
            .map(|region| ObjectKey::of(region.memory.file()));
        Self {
            ram: ram.flatten().collect(),
            host,
            import_device,
            broker,
            worker,
            resources: Mutex::new(Resources {
                ended: false,
                placed: BTreeMap::new(),
                bound: HashMap::new(),
                objects: Objects::new(limits),
            }),
        }
    }

    pub fn place(&self, request: &Place, file: OwnedFd) -> Result<Answer, Refused> {
        let access = Access::from_wire(request.access.into()).ok_or(Errno::INVAL)?;
        leave_reserve(&file)?;
        let bytes = request.bytes;
        let fail = |source| PlaceError::Map { bytes, source };
        let shown = match request.kind == Placed::Host as u16 {
            true => Shown::Host(file),
            false => Shown::Device(self.device_memory(request, file).map_err(fail)?),
        };
        // Held here, what is refused is unmapped without the lock, too.
        let device = shown.device();
        let mut resources = self.resources.lock();
        if resources.ended {
            return Err(Errno::CANCELED.into());
        }
        let (backing, object) = match shown {
            Shown::Device(memory) => (Backing::Device(memory), None),
            Shown::Host(file) => {
                let adopted = resources.objects.adopt(file, request.pages);
                let (memory, object) = adopted.map_err(fail)?;
                (memory.into(), Some(object))
            }
        };
        check_pages(request, backing.bytes()).map_err(fail)?;
        if let Some(object) = object {
            self.hold(&mut resources, object, backing.bytes(), access)?;
        }
        let placed = self.host.place(&backing, request.offset, bytes, access);
        if let (Err(_), Some(object)) = (&placed, object) {
            resources.objects.release(object);
        }
        let offset = placed?;
        let placement = Placement {
            object,
            _device: device.clone(),
            access,
        };
        resources.placed.insert(offset, placement);
        let mut answer = done();
        answer.value = offset;
        Ok(answer)
    }

    /// Counts a use of a memory object of `bytes` bytes with the rights `access`.
    fn hold(
        &self,
        resources: &mut Resources,
        object: ObjectKey,
        bytes: u64,
        access: Access,
    ) -> Result<(), Refused> {
        let of_another = self.broker.rights(object, self.worker);
        let is_own = match of_another {
            Some(rights) if !rights.access.allows(access) => return Err(Overdraft::Foreign.into()),
            Some(rights) if rights.bytes != bytes => return Err(Overdraft::Resized.into()),
            Some(_) => false,
            None => !self.ram.contains(&object),
        };
        Ok(resources.objects.hold(object, bytes, is_own)?)
    }

    /// Returns what the worker may do with an object in use; `None` if it is its own.
    fn rights(&self, resources: &Resources, object: ObjectKey) -> Option<Access> {
        let rights = self.broker.rights(object, self.worker);
        let rights = rights.map(|rights| rights.access);
        let revoked = || resources.objects.is_revoked(object).then_some(Access::None);
        rights.or_else(revoked)
    }

    /// Returns whether the worker has ended.
    pub fn has_ended(&self) -> bool {
        self.resources.lock().ended
    }

    /// Counts memory that the worker exports as used by it: importers show it to their guests.
    /// Returns the object and its size.
    pub fn export(&self, file: &OwnedFd, pages: u32) -> Result<(ObjectKey, u64), Refused> {
        leave_reserve(file)?;
        let file = file.try_clone().map_err(|_| Errno::MFILE)?;
        let mut resources = self.resources.lock();
        if resources.ended {
            return Err(Errno::CANCELED.into());
        }
        let adopted = resources.objects.adopt(file, pages);
        let (memory, object) = adopted.map_err(|_| Errno::INVAL)?;
        let bytes = memory.bytes();
        self.hold(&mut resources, object, bytes, Access::ReadWrite)?;
        Ok((object, bytes))
    }

    /// Ends what [`Self::export`] began.
    pub fn end_export(&self, object: ObjectKey) {
        self.resources.lock().objects.release(object);
    }

    /// Takes those rights to a memory object from the guest that the worker's imports no longer
    /// give. The worker still has to remove what it has placed.
    pub fn restrict(&self, object: ObjectKey) -> Result<(), PlaceError> {
        let mut resources = self.resources.lock();
        let Some(Rights { access: rights, .. }) = self.broker.rights(object, self.worker) else {
            return Ok(());
        };
        if rights == Access::None {
            resources.objects.revoke(object);
        }
        for (offset, placement) in &mut resources.placed {
            if placement.object == Some(object) && !rights.allows(placement.access) {
                self.host.set_access(*offset, rights)?;
                placement.access = rights;
            }
        }
        if !rights.allows(Access::ReadWrite) {
            let of_object = |_: &u32, bound: &mut Doorbell| bound.object == object;
            let ended: Vec<_> = resources.bound.extract_if(of_object).collect();
            for (index, bound) in ended {
                self.host.unbind_doorbell(index, &bound.event);
                resources.objects.release(object);
            }
        }
        Ok(())
    }

    pub fn set_access(&self, request: &SetAccess) -> Result<Answer, Refused> {
        let access = Access::from_wire(request.access).ok_or(Errno::INVAL)?;
        let mut resources = self.resources.lock();
        let object = resources.placed(request.offset)?.object;
        let rights = object.and_then(|object| self.rights(&resources, object));
        if rights.is_some_and(|rights| !rights.allows(access)) {
            return Err(Errno::ACCESS.into());
        }
        let placement = resources.placed(request.offset)?;
        // Also if it fails: the guest may have what it had.
        placement.access = access;
        self.host.set_access(request.offset, access)?;
        Ok(done())
    }

    pub fn remove(&self, request: &Remove) -> Result<Answer, Refused> {
        let mut resources = self.resources.lock();
        let object = resources.placed(request.offset)?.object;
        self.host.remove(request.offset)?;
        let removed = resources.placed.remove(&request.offset);
        object.inspect(|object| resources.objects.release(*object));
        drop(resources);
        drop(removed);
        Ok(done())
    }

    pub fn bind_doorbell(
        &self,
        request: &BindDoorbell,
        event: OwnedFd,
        ring: OwnedFd,
    ) -> Result<Answer, Refused> {
        let index = request.index;
        leave_reserve(&event)?;
        leave_reserve(&ring)?;
        let event = event::adopt(event).filter(|_| index < COUNT);
        let event = event.ok_or(Errno::INVAL)?;
        let mut resources = self.resources.lock();
        let adopted = resources.objects.adopt(ring, 0);
        let (memory, object) = adopted.map_err(|_| Errno::INVAL)?;
        if resources.ended || resources.bound.contains_key(&index) {
            return Err(Errno::BUSY.into());
        }
        self.hold(&mut resources, object, memory.bytes(), Access::ReadWrite)?;
        let offset = request.ring_offset;
        let ring = RingPlace { memory, offset };
        if let Err(error) = self.host.bind_doorbell(index, &event, &ring) {
            resources.objects.release(object);
            log::debug!("cannot bind doorbell {index}: {error}");
            return Err(Refused::new(Outcome::Slot, error.raw_os_error()));
        }
        let bound = Doorbell {
            event,
            ring,
            object,
        };
        resources.bound.insert(index, bound);
        Ok(done())
    }

    pub fn unbind_doorbell(&self, request: &UnbindDoorbell) -> Answer {
        let mut resources = self.resources.lock();
        if let Some(bound) = resources.bound.remove(&request.index) {
            self.host.unbind_doorbell(request.index, &bound.event);
            resources.objects.release(bound.object);
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
        let placed = std::mem::take(&mut resources.placed);
        for offset in placed.keys() {
            if let Err(error) = self.host.remove(*offset) {
                log::error!(
                    "cannot remove memory of an ended worker process from its VM's aperture, so \
                     the guest may still access this memory: {error}"
                );
            }
        }
        for (index, bound) in std::mem::take(&mut resources.bound) {
            self.host.unbind_doorbell(index, &bound.event);
        }
        drop(resources);
        drop(placed);
    }

    /// Returns the device memory behind the descriptor of a request, mapped. Calls the driver.
    fn device_memory(
        &self,
        request: &Place,
        file: OwnedFd,
    ) -> Result<Arc<MappedDevice>, MemoryError> {
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
        let memory = import(*device, file, request.memory_bytes)?;
        check_pages(request, memory.bytes())?;
        let range = (request.offset, request.bytes);
        MappedDevice::new(memory, range).map(Arc::new)
    }
}

impl Shown {
    fn device(&self) -> Option<Arc<MappedDevice>> {
        match self {
            Self::Host(_) => None,
            Self::Device(device) => Some(Arc::clone(device)),
        }
    }
}

impl Resources {
    /// Returns what the worker has placed at an aperture offset; refuses one where it has placed
    /// nothing.
    fn placed(&mut self, offset: u64) -> Result<&mut Placement, Refused> {
        let absent = || Refused(Answer::new(Outcome::Absent as u32));
        self.placed.get_mut(&offset).ok_or_else(absent)
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

fn done() -> Answer {
    Answer::new(Outcome::Done as u32)
}

#[cfg(test)]
#[path = "guest_tests.rs"]
mod tests;
