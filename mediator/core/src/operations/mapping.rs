//! Address spaces, and mappings for the GPU and in the aperture.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_memory::PAGE_BYTES;
use causeway_protocol::message::{
    AddressReply, Empty, HandleReply, HandleRequest, MapCpu, MapGpu, SetAccess, SpaceAddress,
    Status,
};

use super::{access, check_aligned, nothing};
use crate::client_session::ClientSession;
use crate::object::{
    ArrayEntry, CommandBufferEntry, MappingEntry, MemoryEntry, ModuleEntry, Object, RecordingEntry,
    SpaceEntry, TextureEntry,
};
use crate::quota::Resource;
use crate::refusal::Refusal;
use crate::shared_space::SharedSpace;
use crate::state::State;

impl ClientSession<'_> {
    pub(super) fn create_space(&self, _: Empty) -> Result<HandleReply, Refusal> {
        let epoch = self.epoch();
        let charge = self.account.charge(Resource::Objects, 1)?;
        let stop = Arc::new(AtomicBool::new(false));
        epoch.generation.watch_stop(&stop);
        let space = self.backend.create_space(Arc::clone(&stop))?;
        let entry = SpaceEntry {
            shared: SharedSpace::new(space, stop),
            mappings: BTreeMap::new(),
            _charge: charge,
        };
        let handle = self.lock_within(&epoch)?.insert(Object::Space(entry))?;
        Ok(HandleReply {
            handle,
            reserved: 0,
        })
    }

    /// Ends a space and everything in it. Work under way in it returns soon.
    pub(super) fn destroy_space(&self, request: HandleRequest) -> Result<Empty, Refusal> {
        let ended = {
            let mut state = self.lock();
            let shared = Arc::clone(&state.get::<SpaceEntry>(request.handle)?.shared);
            let dependents = dependents(&state, request.handle);
            // In the order of `State::evict`, and for its reasons.
            for handle in &dependents {
                if let Ok(entry) = state.get::<CommandBufferEntry>(*handle) {
                    entry.buffer.stop();
                }
            }
            shared.stop();
            self.notifier.end_space(&shared);
            let entry = state.get::<SpaceEntry>(request.handle)?;
            let addresses: Vec<u64> = entry.mappings.keys().copied().collect();
            for address in addresses {
                state.unmap_gpu(request.handle, address)?;
            }
            let handles = dependents.into_iter().chain([request.handle]);
            handles
                .filter_map(|handle| state.remove(handle))
                .collect::<Vec<_>>()
        };
        for object in &ended {
            if let Object::CommandBuffer(entry) = object {
                entry.buffer.join();
            }
        }
        nothing()
    }

    pub(super) fn map_gpu(&self, request: MapGpu) -> Result<AddressReply, Refusal> {
        let access = access(request.access)?;
        let (offset, bytes) = (request.offset, request.length);
        let mut state = self.lock();
        state.get::<SpaceEntry>(request.space)?;
        let memory = state.get::<MemoryEntry>(request.allocation)?;
        let backing = Arc::clone(memory.live()?);
        memory.check_access(access)?;
        check_aligned(PAGE_BYTES, &[offset, bytes, request.address])?;
        memory.check_range(offset, bytes)?;
        let wanted = (request.address != 0).then_some(request.address);
        let granularity = self.backend.attributes().granularity_bytes;
        if let Some(address) = wanted {
            check_aligned(granularity, &[address.wrapping_sub(offset)])?;
        }
        let charge = self.account.charge(Resource::Objects, 1)?;
        let space = state.get_mut::<SpaceEntry>(request.space)?;
        let backend = &space.shared.backend;
        let address = backend.map(wanted, &backing, offset, bytes, access)?;
        let mapping = MappingEntry {
            memory: request.allocation,
            from: offset,
            bytes,
            _charge: charge,
        };
        space.mappings.insert(address, mapping);
        let memory = state.get_mut::<MemoryEntry>(request.allocation)?;
        memory.gpu.insert((request.space, address));
        Ok(AddressReply { address })
    }

    pub(super) fn unmap_gpu(&self, request: SpaceAddress) -> Result<Empty, Refusal> {
        self.lock().unmap_gpu(request.space, request.address)?;
        nothing()
    }

    pub(super) fn map_cpu(&self, request: MapCpu) -> Result<AddressReply, Refusal> {
        let access = access(request.access)?;
        let (offset, bytes) = (request.offset, request.length);
        let mut state = self.lock();
        let memory = state.get::<MemoryEntry>(request.allocation)?;
        memory.live()?;
        memory.check_access(access)?;
        check_aligned(PAGE_BYTES, &[offset, bytes])?;
        memory.check_range(offset, bytes)?;
        let backing = memory.cpu_visible()?;
        let charge = self.account.charge(Resource::Objects, 1)?;
        let address = self.peers.host.place(&backing, offset, bytes, access)?;
        let mapping = MappingEntry {
            memory: request.allocation,
            from: offset,
            bytes,
            _charge: charge,
        };
        state.aperture.insert(address, mapping);
        let memory = state.get_mut::<MemoryEntry>(request.allocation)?;
        memory.cpu.insert(address);
        Ok(AddressReply { address })
    }

    pub(super) fn unmap_cpu(&self, request: SpaceAddress) -> Result<Empty, Refusal> {
        if request.space != 0 {
            return Err(Refusal::bad_handle(request.space));
        }
        self.lock().unmap_cpu(&*self.peers.host, request.address)?;
        nothing()
    }

    pub(super) fn set_access(&self, request: SetAccess) -> Result<Empty, Refusal> {
        let access = access(request.access)?;
        let state = self.lock();
        let no_mapping = Refusal::new(Status::BadRange);
        let space = match request.space {
            0 => None,
            handle => Some(state.get::<SpaceEntry>(handle)?),
        };
        let mappings = space.map_or(&state.aperture, |space| &space.mappings);
        let mapping = mappings.get(&request.address).ok_or(no_mapping)?;
        // Other clients have mappings in the aperture too.
        if !state.owns(mapping.memory) {
            return Err(no_mapping);
        }
        let memory = state.get::<MemoryEntry>(mapping.memory)?;
        memory.check_access(access)?;
        match space {
            Some(space) => space.shared.backend.set_access(request.address, access)?,
            None => self.peers.host.set_access(request.address, access)?,
        }
        nothing()
    }
}

/// Returns the modules, kernels, command buffers, recordings, arrays and textures of a space.
fn dependents(state: &State, space: u32) -> Vec<u32> {
    let mut handles = Vec::new();
    for (handle, object) in state.objects() {
        match object {
            Object::Module(ModuleEntry {
                space: s, kernels, ..
            }) if *s == space => {
                handles.push(handle);
                handles.extend(kernels.values());
            }
            Object::CommandBuffer(CommandBufferEntry { space: s, .. })
            | Object::Recording(RecordingEntry { space: s })
            | Object::Array(ArrayEntry { space: s })
            | Object::Texture(TextureEntry { space: s, .. })
                if *s == space =>
            {
                handles.push(handle);
            }
            _ => {}
        }
    }
    handles
}
