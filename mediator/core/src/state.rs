//! The objects of a session, and how their mappings end.

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_protocol::message::Status;

use crate::backend::{Fault, Memory, cause};
use crate::client::Client;
use crate::generation::Generation;
use crate::handles::Table;
use crate::host::Host;
use crate::object::{Kind, MappingEntry, MemoryEntry, Object, Origin, SpaceEntry};
use crate::owners::{Counts, Owners};
use crate::refusal::Refusal;

/// The objects behind a session's handles, under one lock (see the crate's lock order). The lock is
/// held for table work and for mapping and unmapping, never while work executes or a module is
/// compiled.
pub(crate) struct State {
    objects: Table<Owned>,
    counts: Counts,
    owners: Arc<Owners>,
    /// The aperture mappings of the session, by offset in the aperture.
    pub aperture: BTreeMap<u64, MappingEntry>,
    /// Clients that have sent the message `Hello`, as a set of [`Client::bit`]s.
    pub greeted: u64,
    /// Whether the session was closed for good.
    pub closed: bool,
    pub generation: Arc<Generation>,
}

struct Owned {
    client: Client,
    object: Object,
}

impl State {
    /// Creates a state that contains no objects, and clears `owners`, the set of clients that own
    /// objects.
    pub fn new(generation: Arc<Generation>, owners: Arc<Owners>) -> Self {
        owners.set(0);
        Self {
            objects: Table::default(),
            counts: Counts::default(),
            owners,
            aperture: BTreeMap::new(),
            greeted: 0,
            closed: false,
            generation,
        }
    }

    /// Returns the object behind `handle`, whichever client owns it; fails with `BadHandle` unless
    /// it is a `T`.
    pub fn get<T: Kind>(&self, handle: u32) -> Result<&T, Refusal> {
        let object = self.objects.get(handle).map(|owned| &owned.object);
        object.and_then(T::of).ok_or(Refusal::bad_handle(handle))
    }

    pub fn get_mut<T: Kind>(&mut self, handle: u32) -> Result<&mut T, Refusal> {
        let object = self.objects.get_mut(handle).map(|owned| &mut owned.object);
        object
            .and_then(T::of_mut)
            .ok_or(Refusal::bad_handle(handle))
    }

    /// Returns the client that owns the object behind `handle`; `None` if there is no such object.
    pub fn owner(&self, handle: u32) -> Option<Client> {
        self.objects.get(handle).map(|owned| owned.client)
    }

    /// Stores `object` as an object of `client` and returns its new handle; fails with
    /// `QuotaObjects` if all 65,534 handles are taken.
    pub fn insert(&mut self, client: Client, object: Object) -> Result<u32, Refusal> {
        let handle = self
            .objects
            .insert(Owned { client, object })
            .map_err(|_| Refusal::new(Status::QuotaObjects))?;
        if self.counts.add(client) {
            self.owners.set(self.owners.bits() | client.bit());
        }
        Ok(handle)
    }

    /// Removes the object behind `handle` and returns it.
    pub fn remove(&mut self, handle: u32) -> Option<Object> {
        let Owned { client, object } = self.objects.remove(handle)?;
        if self.counts.subtract(client) {
            self.owners.set(self.owners.bits() & !client.bit());
        }
        Some(object)
    }

    /// Iterates over all objects with their handles.
    pub fn objects(&self) -> impl Iterator<Item = (u32, &Object)> {
        self.objects
            .iter()
            .map(|(handle, owned)| (handle, &owned.object))
    }

    /// Iterates over the objects of `client`, so that the caller can modify them.
    pub fn objects_mut(&mut self, client: Client) -> impl Iterator<Item = &mut Object> {
        self.objects
            .iter_mut()
            .filter(move |owned| owned.client == client)
            .map(|owned| &mut owned.object)
    }

    /// Returns the handles of all objects of `client`, or of all clients if it is `None`.
    pub fn handles(&self, client: Option<Client>) -> Vec<u32> {
        self.objects
            .iter()
            .filter(|(_, owned)| client.is_none_or(|client| client == owned.client))
            .map(|(handle, _)| handle)
            .collect()
    }

    /// Removes the objects behind `handles`, which are all objects of one client or of all clients,
    /// and returns them. Before that, asks their consumers and their running work to stop, and
    /// removes their mappings. The caller then waits for the consumers and drops the objects; it
    /// must hold no lock meanwhile.
    ///
    /// Consumers are stopped before running work, so that none begins another packet. Work is
    /// stopped before mappings are removed, so that a fault caused by the removal is not reported
    /// to the guest. If a mapping cannot be removed, the session is lost.
    pub fn evict(&mut self, host: &dyn Host, handles: &[u32]) -> Vec<Object> {
        let objects = || {
            handles
                .iter()
                .filter_map(|handle| self.objects.get(*handle))
        };
        for owned in objects() {
            if let Object::CommandBuffer(entry) = &owned.object {
                entry.buffer.stop();
            }
        }
        for owned in objects() {
            if let Object::Space(entry) = &owned.object {
                entry.shared.stop();
            }
        }
        for handle in handles {
            if self.get::<MemoryEntry>(*handle).is_ok() {
                let _ = self.unmap_everywhere(host, *handle);
            }
        }
        let removed = handles.iter().filter_map(|handle| self.remove(*handle));
        removed.collect()
    }

    /// Removes the GPU mapping that begins at `address` of the address space with handle `space`.
    pub fn unmap_gpu(&mut self, space: u32, address: u64) -> Result<(), Refusal> {
        let entry = self.get_mut::<SpaceEntry>(space)?;
        let mapping = entry.mappings.remove(&address);
        let mapping = mapping.ok_or(Refusal::new(Status::BadRange))?;
        let ended = entry.shared.backend.unmap(address);
        let memory = self.get_mut::<MemoryEntry>(mapping.memory).ok();
        let memory = memory.and_then(|entry| {
            entry.gpu.remove(&(space, address));
            entry.memory.clone()
        });
        ended.map_err(|e| {
            let text = format!(
                "cannot remove the mapping at GPU address {address:#x}: {e}{}",
                cause(&e)
            );
            self.keep_unreleased(memory, text)
        })
    }

    /// Removes the mapping that begins at `offset` of the aperture.
    pub fn unmap_cpu(&mut self, host: &dyn Host, offset: u64) -> Result<(), Refusal> {
        let mapping = self.aperture.remove(&offset);
        let mapping = mapping.ok_or(Refusal::new(Status::BadRange))?;
        let memory = self.get_mut::<MemoryEntry>(mapping.memory).ok();
        let memory = memory.and_then(|entry| {
            entry.cpu.remove(&offset);
            entry.memory.clone()
        });
        host.remove(offset).map_err(|e| {
            let text = format!(
                "cannot remove the mapping at aperture offset {offset:#x}: {e}{}",
                cause(&e)
            );
            self.keep_unreleased(memory, text)
        })
    }

    /// Handles a mapping that cannot be ended: the session is lost, and the memory is never freed,
    /// so that no one else gets it.
    fn keep_unreleased(&self, memory: Option<Arc<dyn Memory>>, text: String) -> Refusal {
        log::error!(
            "{text}; the guest's session is lost, and the memory of this mapping is not freed \
             until this process ends"
        );
        std::mem::forget(memory);
        self.generation.lose(Fault::new(Status::BackEnd, text));
        Refusal::new(Status::BackEnd)
    }

    /// Removes every mapping of device memory in this session, and takes the memory away from its
    /// handles; requests that use them fail with `Revoked` afterwards. Returns each piece of memory
    /// with its origin. The caller must end the exports or the import that an origin names, without
    /// holding a lock.
    pub fn take_device_memory(&mut self, host: &dyn Host) -> Vec<(Origin, Arc<dyn Memory>)> {
        let mut taken = Vec::new();
        for handle in self.handles(None) {
            let Ok(entry) = self.get_mut::<MemoryEntry>(handle) else {
                continue;
            };
            if !entry.material.is_of_device() {
                continue;
            }
            // A mapping that cannot be ended keeps its memory.
            let _ = self.unmap_everywhere(host, handle);
            if let Ok(entry) = self.get_mut::<MemoryEntry>(handle)
                && let Some(memory) = entry.memory.take()
            {
                taken.push((std::mem::take(&mut entry.origin), memory));
            }
        }
        taken
    }

    /// Removes every GPU and aperture mapping of the memory behind `handle` in this session.
    pub fn unmap_everywhere(&mut self, host: &dyn Host, handle: u32) -> Result<(), Refusal> {
        let entry = self.get_mut::<MemoryEntry>(handle)?;
        let gpu: Vec<_> = entry.gpu.iter().copied().collect();
        let cpu: Vec<_> = entry.cpu.iter().copied().collect();
        let mut outcome = Ok(());
        for (space, address) in gpu {
            outcome = outcome.and(self.unmap_gpu(space, address));
        }
        for offset in cpu {
            outcome = outcome.and(self.unmap_cpu(host, offset));
        }
        outcome
    }
}
