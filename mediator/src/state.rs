//! What a session owns, and how mappings of it end.

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_protocol::message::Status;

use crate::backend::{Fault, Memory};
use crate::handles::Table;
use crate::host::Host;
use crate::life::Life;
use crate::object::{Kind, MappingEntry, MemoryEntry, Object, SpaceEntry};
use crate::refusal::{Refusal, cause};

/// Everything behind the handles of a session, under one lock (see the crate's lock order). The lock is
/// held for table work and for mapping and unmapping, never while work executes or a module is compiled.
pub(crate) struct State {
    pub objects: Table<Object>,
    /// Aperture mappings by offset.
    pub aperture: BTreeMap<u64, MappingEntry>,
    /// Whether hello was said.
    pub greeted: bool,
    /// Whether the session was closed for good.
    pub closed: bool,
    pub life: Arc<Life>,
}

impl State {
    pub fn new(life: Arc<Life>) -> Self {
        Self {
            objects: Table::default(),
            aperture: BTreeMap::new(),
            greeted: false,
            closed: false,
            life,
        }
    }

    /// The object behind `handle`, if it is a `T`.
    pub fn get<T: Kind>(&self, handle: u32) -> Result<&T, Refusal> {
        let object = self.objects.get(handle).and_then(T::of);
        object.ok_or(Refusal::bad_handle(handle))
    }

    pub fn get_mut<T: Kind>(&mut self, handle: u32) -> Result<&mut T, Refusal> {
        let object = self.objects.get_mut(handle).and_then(T::of_mut);
        object.ok_or(Refusal::bad_handle(handle))
    }

    /// A handle for a new object. Quotas are the limit that matters; the table is larger than most.
    pub fn insert(&mut self, object: Object) -> Result<u32, Refusal> {
        self.objects
            .insert(object)
            .map_err(|_| Refusal::new(Status::QuotaObjects))
    }

    /// Ends the GPU mapping at `address` of a space.
    pub fn unmap_gpu(&mut self, space: u32, address: u64) -> Result<(), Refusal> {
        let life = Arc::clone(&self.life);
        let entry = self.get_mut::<SpaceEntry>(space)?;
        let mapping = entry.mappings.remove(&address);
        let mapping = mapping.ok_or(Refusal::new(Status::BadRange))?;
        let ended = entry.shared.backend.unmap(address);
        let memory = self.get_mut::<MemoryEntry>(mapping.memory).ok();
        let memory = memory.and_then(|entry| {
            entry.gpu.remove(&(space, address));
            entry.memory.clone()
        });
        if let Err(error) = ended {
            let text = format!(
                "cannot unmap GPU address {address:#x}: {error}{}",
                cause(&error)
            );
            keep_unreleased(&life, memory, text);
            return Err(Refusal::new(Status::BackEnd));
        }
        Ok(())
    }

    /// Ends the aperture mapping at `offset`.
    pub fn unmap_cpu(&mut self, host: &dyn Host, offset: u64) -> Result<(), Refusal> {
        let life = Arc::clone(&self.life);
        let mapping = self.aperture.remove(&offset);
        let mapping = mapping.ok_or(Refusal::new(Status::BadRange))?;
        let memory = self.get_mut::<MemoryEntry>(mapping.memory).ok();
        let memory = memory.and_then(|entry| {
            entry.cpu.remove(&offset);
            entry.memory.clone()
        });
        if let Err(error) = host.remove(offset) {
            let text = format!(
                "cannot remove aperture offset {offset:#x}: {error}{}",
                cause(&error)
            );
            keep_unreleased(&life, memory, text);
            return Err(Refusal::new(Status::BackEnd));
        }
        Ok(())
    }

    /// Ends every mapping of the memory behind `handle` in this session.
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

/// A mapping that will not go: the session is lost, and its memory is never given to anyone else.
fn keep_unreleased(life: &Life, memory: Option<Arc<dyn Memory>>, text: String) {
    log::error!("{text}; its memory is kept back for good");
    std::mem::forget(memory);
    life.lose(Fault {
        status: Status::BackEnd,
        text,
    });
}
