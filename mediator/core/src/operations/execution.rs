//! Loading of modules, and command buffers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_memory::PAGE_BYTES;
use causeway_protocol::message::{
    CommandBufferReply, CreateCommandBuffer, CreatePriorityCommandBuffer, Empty, HandleRequest,
    LoadModule, MODULE_BYTES_MAX, MemoryKind, Status,
};
use causeway_protocol::registers::features;
use causeway_protocol::ring;

use super::{check_aligned, nothing};
use crate::backend::{Memory, ModuleError, Reservation};
use crate::client_session::{ClientSession, OpenSpace};
use crate::command_buffer::{CommandBuffer, Placement};
use crate::loads::UnderWay;
use crate::object::{CommandBufferEntry, Material, MemoryEntry, ModuleEntry, Object, Origin};
use crate::quota::Resource;
use crate::refusal::{Refusal, refuse_if};

/// How long `DestroyCommandBuffer` waits for the packet under way before it fails with `Busy`.
const DESTROY_PATIENCE: Duration = Duration::from_secs(2);

impl ClientSession<'_> {
    /// Compiles without the session's lock: a large module must not block the guest's other CPUs.
    /// Sets `log_bytes` to the bytes that it writes to the guest's log.
    pub(super) fn load_module(
        &self,
        request: LoadModule,
        log_bytes: &mut u32,
    ) -> Result<u32, Refusal> {
        let space = self.open_space(request.space)?;
        let bytes = request.image_bytes;
        refuse_if(bytes == 0 || bytes > MODULE_BYTES_MAX, Status::BadRange)?;
        // The guest has staged as many bytes as the copy takes.
        self.check_guest(request.image_address, bytes)?;
        let image_charge = self.account.charge(Resource::ModuleBytes, bytes)?;
        let object_charge = self.account.charge(Resource::Objects, 1)?;
        let _under_way = self.begin_load(&space, bytes)?;
        let mut image = vec![0; bytes as usize];
        self.read_guest(request.image_address, &mut image)?;
        let mut reservation = Reservation::new(&self.account);
        let loaded = space.shared.backend.load_module(&image, &mut reservation);
        let module = match loaded {
            Ok(module) => module,
            Err(error) => {
                log::debug!(
                    "session {} ({}): cannot load a module: {error}",
                    self.id,
                    self.name
                );
                *log_bytes = self.write_log(&request, &error.to_string())?;
                let refusal = reservation.refusal();
                return Err(refusal.unwrap_or_else(|| self.module_refusal(&error)));
            }
        };
        // A module that takes more than it has reserved, and more than the session has, is dropped.
        let [memory_charge, allocation_charge] = reservation.settle(module.memory_bytes())?;
        let mut state = self.lock_with(&space)?;
        let entry = ModuleEntry {
            space: request.space,
            module,
            kernels: HashMap::new(),
            names: None,
            charges: Arc::new([
                image_charge,
                object_charge,
                memory_charge,
                allocation_charge,
            ]),
        };
        state.insert(Object::Module(entry))
    }

    /// Waits until the loads under way leave room for that of an image of `image_bytes` bytes.
    fn begin_load(&self, space: &OpenSpace, image_bytes: u64) -> Result<UnderWay, Refusal> {
        let bytes = image_bytes.saturating_add(self.backend.load_bytes(image_bytes));
        let is_over = || self.is_over(&space.epoch);
        let gives_up = || is_over() || self.interrupted.load(Ordering::SeqCst);
        let under_way = self.loads.begin(self.id, bytes, gives_up)?;
        // One that waited for others loads nothing for a session that has ended meanwhile.
        refuse_if(is_over(), Status::DeviceLost)?;
        Ok(under_way)
    }

    /// A device that executes no kernels refuses every module, whatever is in it.
    fn module_refusal(&self, error: &ModuleError) -> Refusal {
        match self.backend.attributes().features & features::KERNELS {
            0 => Refusal::new(Status::Unsupported),
            _ => Refusal::with(Status::BadModule, error.line),
        }
    }

    /// Writes as much of `text` as the guest's log has room for. Returns the number of bytes.
    fn write_log(&self, request: &LoadModule, text: &str) -> Result<u32, Refusal> {
        let room = request.log_bytes as usize;
        let bytes = &text.as_bytes()[..text.len().min(room)];
        if !bytes.is_empty() {
            self.write_guest(request.log_address, bytes)?;
        }
        Ok(bytes.len() as u32)
    }

    pub(super) fn create_command_buffer(
        &self,
        request: CreateCommandBuffer,
    ) -> Result<CommandBufferReply, Refusal> {
        self.start_command_buffer(request, 0)
    }

    /// Brings the priority into the device's range, as the CUDA driver does: a guest need not know
    /// which device it has.
    pub(super) fn create_priority_command_buffer(
        &self,
        request: CreatePriorityCommandBuffer,
    ) -> Result<CommandBufferReply, Refusal> {
        self.require(features::PRIORITIES)?;
        let plain = CreateCommandBuffer {
            space: request.space,
            allocation: request.allocation,
            offset: request.offset,
            length: request.length,
        };
        let greatest = self.backend.greatest_priority().min(0);
        self.start_command_buffer(plain, request.priority.clamp(greatest, 0))
    }

    /// Creates queue, doorbell and thread without the session's lock.
    fn start_command_buffer(
        &self,
        request: CreateCommandBuffer,
        priority: i32,
    ) -> Result<CommandBufferReply, Refusal> {
        let space = self.open_space(request.space)?;
        let memory = self.ring_memory(&request)?;
        let charge = self.account.charge(Resource::CommandBuffers, 1)?;
        let placement = Placement {
            memory,
            offset: request.offset,
            bytes: request.length,
            priority,
        };
        let buffer = CommandBuffer::start(
            &self.command_buffers,
            &*self.peers.host,
            &space.epoch.generation,
            &space.shared,
            placement,
            charge,
        )?;
        let doorbell = buffer.doorbell();
        let entry = CommandBufferEntry {
            space: request.space,
            buffer: Arc::clone(&buffer),
        };
        let state = self.lock_with(&space);
        match state.and_then(|mut state| state.insert(Object::CommandBuffer(entry))) {
            Ok(handle) => Ok(CommandBufferReply { handle, doorbell }),
            Err(refusal) => {
                buffer.join();
                Err(refusal)
            }
        }
    }

    /// Returns the memory for a new command buffer.
    fn ring_memory(&self, request: &CreateCommandBuffer) -> Result<Arc<dyn Memory>, Refusal> {
        let state = self.lock();
        let entry = state.get::<MemoryEntry>(request.allocation)?;
        let memory = Arc::clone(entry.live()?);
        let own = matches!(entry.origin, Origin::Own { .. });
        let host = entry.material == Material::GuestRam
            || entry.material == Material::Allocated(MemoryKind::Host);
        refuse_if(!own || !host, Status::BadMemory)?;
        check_aligned(PAGE_BYTES, &[request.offset])?;
        entry.check_range(request.offset, request.length)?;
        let units = ring::capacity_units(request.length);
        refuse_if(units.is_none(), Status::BadMemory)?;
        Ok(memory)
    }

    /// Waits for the packet under way, for a limited time. If a kernel does not end, the message
    /// fails with `Busy`; only the end of its address space or of the session stops the kernel.
    pub(super) fn destroy_command_buffer(&self, request: HandleRequest) -> Result<Empty, Refusal> {
        let entry = self.lock();
        let buffer = Arc::clone(&entry.get::<CommandBufferEntry>(request.handle)?.buffer);
        drop(entry);
        if !buffer.stop_within(&self.signal, DESTROY_PATIENCE, &self.interrupted) {
            return Err(Refusal::new(Status::Busy));
        }
        let mut state = self.lock();
        // Another CPU of the guest may have been faster, and the handle may stand for a new object.
        let entry = state.get::<CommandBufferEntry>(request.handle)?;
        if !Arc::ptr_eq(&entry.buffer, &buffer) {
            return Err(Refusal::bad_handle(request.handle));
        }
        let removed = state.remove(request.handle);
        drop(state);
        drop(removed);
        buffer.join();
        nothing()
    }
}
