//! Fabric handles: memory for, and of, other machines of an NVLink fabric.
//!
//! A handle is the driver's, and so is the right that it gives: it is for all who have a channel of
//! the fabric, and nothing here takes it back. So no exchange has a part in this.

use causeway_protocol::Access;
use causeway_protocol::message::{
    AllocateReply, FabricHandle, HandleRequest, ImportFabric, MemoryKind, Status,
};
use causeway_protocol::registers::features;

use crate::charged::Charged;
use crate::client_session::ClientSession;
use crate::object::{Material, MemoryEntry, Origin};
use crate::quota::Resource;
use crate::refusal::{Refusal, refuse_if};

impl ClientSession<'_> {
    /// Returns the handle of memory that the session allocated. Memory of another owner is not the
    /// session's to give away.
    pub(super) fn export_fabric(&self, request: HandleRequest) -> Result<FabricHandle, Refusal> {
        self.require(features::FABRIC_EXPORT)?;
        let memory = {
            let state = self.lock();
            let entry = state.get::<MemoryEntry>(request.handle)?;
            let is_own = matches!(entry.origin, Origin::Own { .. });
            refuse_if(!is_own, Status::AccessDenied)?;
            let is_device = entry.material == Material::Allocated(MemoryKind::Device);
            refuse_if(!is_device, Status::BadMemory)?;
            entry.live()?.clone()
        };
        // Without the lock: the driver asks other programs of the host.
        let handle = memory.fabric_handle()?;
        Ok(FabricHandle { handle })
    }

    /// The memory counts for the importer: it exists as long as the import, whatever its owner
    /// does, and its owner may be a session of this host that has freed it.
    pub(super) fn import_fabric(&self, request: ImportFabric) -> Result<AllocateReply, Refusal> {
        self.require(features::FABRIC_IMPORT)?;
        if request.size == 0 {
            self.backend.find_fabric(&request.handle)?;
            return Ok(AllocateReply::default());
        }
        let granularity = self.backend.attributes().granularity_bytes;
        let is_whole = request.size.is_multiple_of(granularity);
        refuse_if(!is_whole, Status::BadMemory)?;
        let epoch = self.epoch();
        let slot = self.account.charge(Resource::Allocations, 1)?;
        let charge = self.account.charge(Resource::MemoryBytes, request.size)?;
        let memory = self.backend.import_fabric(&request.handle, request.size)?;
        let memory = Charged::attach(memory, charge);
        let material = Material::Allocated(MemoryKind::Device);
        let entry = MemoryEntry::new(memory, material, Access::ReadWrite, Origin::Fabric, slot);
        self.own(&epoch, entry)
    }
}
