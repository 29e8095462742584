//! Allocations and registered guest RAM.

use causeway_memory::PAGE_BYTES;
use causeway_protocol::message::{
    Allocate, AllocateReply, Empty, HandleRequest, MemoryKind, RegisterRam, Status, allocate_flags,
};
use causeway_protocol::{Access, registers::features};

use std::sync::Arc;

use super::{check_aligned, nothing};
use crate::backend::{AllocateOptions, Memory};
use crate::charged::Charged;
use crate::client_session::{ClientSession, Epoch};
use crate::decode::HEADER_BYTES;
use crate::object::{Material, MemoryEntry, Object, Origin};
use crate::quota::{Charge, Resource};
use crate::refusal::{Refusal, refuse_if};

impl ClientSession<'_> {
    pub(super) fn allocate(&self, request: Allocate) -> Result<AllocateReply, Refusal> {
        let kind = MemoryKind::from_wire(request.kind).ok_or(Refusal::new(Status::BadMemory))?;
        let options = self.options(request.flags)?;
        // CPUs see memory through a driver that knows no such handles.
        let has_handle = kind == MemoryKind::Device;
        refuse_if(options.fabric && !has_handle, Status::BadMemory)?;
        refuse_if(request.size == 0, Status::BadRange)?;
        let granularity = self.backend.attributes().granularity_bytes;
        // A size that cannot be rounded up is more than any quota.
        let bytes = request.size.checked_next_multiple_of(granularity);
        let bytes = bytes.unwrap_or(u64::MAX);
        let epoch = self.epoch();
        let slot = self.account.charge(Resource::Allocations, 1)?;
        let charge = self.account.charge(Resource::MemoryBytes, bytes)?;
        let memory = self.backend.allocate(kind, bytes, options)?;
        let memory = Charged::attach(memory, charge);
        self.own_memory(&epoch, memory, Material::Allocated(kind), slot)
    }

    /// Returns the options that the flags of a request ask for, if the device has them.
    fn options(&self, flags: u32) -> Result<AllocateOptions, Refusal> {
        let unknown = flags & !(allocate_flags::COMPRESSIBLE | allocate_flags::FABRIC);
        if unknown != 0 {
            let field = HEADER_BYTES + std::mem::offset_of!(Allocate, flags);
            let offset = field as u32 + unknown.trailing_zeros() / 8;
            return Err(Refusal::with(Status::ReservedNotZero, offset));
        }
        let compressible = flags & allocate_flags::COMPRESSIBLE != 0;
        if compressible {
            self.require(features::COMPRESSION)?;
        }
        let fabric = flags & allocate_flags::FABRIC != 0;
        if fabric {
            self.require(features::FABRIC_EXPORT)?;
        }
        Ok(AllocateOptions {
            compressible,
            fabric,
        })
    }

    pub(super) fn register_ram(&self, request: RegisterRam) -> Result<AllocateReply, Refusal> {
        self.require(features::GUEST_RAM)?;
        check_aligned(PAGE_BYTES, &[request.address, request.length])?;
        refuse_if(request.length == 0, Status::BadRange)?;
        let epoch = self.epoch();
        let slot = self.account.charge(Resource::Allocations, 1)?;
        let charge = self
            .account
            .charge(Resource::RegisteredBytes, request.length)?;
        let (ram, offset) = self.peers.host.ram(request.address, request.length)?;
        let memory = self.backend.register_ram(ram, offset, request.length)?;
        let memory = Charged::attach(memory, charge);
        self.own_memory(&epoch, memory, Material::GuestRam, slot)
    }

    pub(super) fn free(&self, request: HandleRequest) -> Result<Empty, Refusal> {
        let handle = request.handle;
        let entry = {
            let mut state = self.lock();
            state.unmap_everywhere(&*self.peers.host, handle)?;
            match state.remove(handle) {
                Some(Object::Memory(entry)) => {
                    let memory = entry.memory.as_ref();
                    self.leave(&state.generation, &entry.origin, memory);
                    entry
                }
                _ => return Err(Refusal::bad_handle(handle)),
            }
        };
        self.withdraw_all(self.peers, &entry.origin);
        drop(entry);
        self.forget_left(self.peers);
        nothing()
    }

    /// Creates a handle for new memory of this session.
    fn own_memory(
        &self,
        epoch: &Epoch,
        memory: Arc<dyn Memory>,
        material: Material,
        slot: Charge,
    ) -> Result<AllocateReply, Refusal> {
        let access = Access::ReadWrite;
        let entry = MemoryEntry::new(memory, material, access, Origin::default(), slot);
        self.own(epoch, entry)
    }

    /// Creates a handle for memory that no other session can take away.
    pub(super) fn own(&self, epoch: &Epoch, entry: MemoryEntry) -> Result<AllocateReply, Refusal> {
        let (access, size) = (entry.access.wire(), entry.bytes);
        let handle = self.lock_within(epoch)?.insert(Object::Memory(entry))?;
        Ok(AllocateReply {
            handle,
            access,
            size,
        })
    }
}
