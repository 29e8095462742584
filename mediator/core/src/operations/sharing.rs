//! Export, import, revocation.

use std::sync::Weak;

use causeway_protocol::Access;
use causeway_protocol::message::{AllocateReply, Empty, Export, Import, MemoryKind, Status, Token};
use causeway_protocol::registers::features;

use super::{access, nothing};
use crate::client_session::ClientSession;
use crate::gpus::GpuSet;
use crate::object::{Material, MemoryEntry, Object, Origin, OwnExport};
use crate::quota::Resource;
use crate::refusal::Refusal;
use crate::rights::Party;
use crate::share::{Importer, Importing, Offer, TokenBytes, import_number};

impl ClientSession<'_> {
    /// Exports memory that the session allocated. Imports belong to another session, and guest RAM
    /// holds more than the guest wants to share: both are refused.
    pub(super) fn export(&self, request: Export) -> Result<Token, Refusal> {
        self.require(features::SHARING)?;
        let access = useful(access(request.access)?)?;
        let gpus = self.gpus.wanted(request.gpus);
        let gpus = gpus.map_err(|gpu| Refusal::with(Status::BadGpu, gpu))?;
        let mut state = self.lock();
        let entry = state.get_mut::<MemoryEntry>(request.allocation)?;
        let memory = entry.live()?.clone();
        let Origin::Own { exports } = &mut entry.origin else {
            return Err(Refusal::new(Status::AccessDenied));
        };
        let Material::Allocated(kind) = entry.material else {
            return Err(Refusal::new(Status::BadMemory));
        };
        // CPUs see it through the driver of its own GPU.
        let own = GpuSet::only(self.gpus.own);
        if kind == MemoryKind::DeviceVisible && gpus != own {
            return Err(Refusal::new(Status::BadMemory));
        }
        let charge = self.account.charge(Resource::Objects, 1)?;
        let bytes = memory.bytes();
        let offer = Offer {
            memory,
            kind,
            access,
            gpus,
            home: self.gpus.own,
        };
        let token = self.peers.exchange.publish(self.id, offer)?;
        self.grants.export(gpus, access, bytes);
        exports.push(OwnExport {
            token,
            _charge: charge,
        });
        Ok(Token { token })
    }

    pub(super) fn import(&self, request: Import) -> Result<AllocateReply, Refusal> {
        let access = useful(access(request.access)?)?;
        let epoch = self.epoch();
        let charge = self.account.charge(Resource::Allocations, 1)?;
        // Without the lock: a driver may take long to import memory of another process.
        let offer = self
            .peers
            .exchange
            .fetch(&request.token, access, &self.gpus)?;
        let (bytes, right, home) = (offer.memory.bytes(), offer.access, offer.home);
        let import = import_number();
        let material = Material::Allocated(offer.kind);
        let token = request.token;
        let origin = Origin::Import { token, import };
        let entry = MemoryEntry::new(offer.memory, material, access, origin, charge);
        let mut state = self.lock_within(&epoch)?;
        let handle = state.insert(Object::Memory(entry))?;
        let importer = Importer {
            session: Weak::clone(&self.weak) as Weak<dyn Importing>,
            party: Party {
                session: self.id,
                gpu: self.gpus.own,
            },
            handle,
            import,
        };
        // An export that was withdrawn since the look above would never revoke this import.
        if !self.peers.exchange.register(&token, importer) {
            state.remove(handle);
            return Err(Refusal::new(Status::BadToken));
        }
        self.grants.import(home, right, bytes);
        Ok(AllocateReply {
            handle,
            access: access.wire(),
            size: bytes,
        })
    }

    /// The token of another client's export is refused like an unknown one, so that the guest does
    /// not learn that the export exists.
    pub(super) fn revoke(&self, request: Token) -> Result<Empty, Refusal> {
        let exchange = &self.peers.exchange;
        if !self.has_exported(&request.token) || !exchange.withdraw(&request.token, self.id) {
            return Err(Refusal::new(Status::BadToken));
        }
        let mut state = self.lock();
        for object in state.objects_mut(self.client) {
            if let Object::Memory(MemoryEntry {
                origin: Origin::Own { exports },
                ..
            }) = object
            {
                exports.retain(|export| export.token != request.token);
            }
        }
        nothing()
    }

    /// Whether this client created the export.
    fn has_exported(&self, token: &TokenBytes) -> bool {
        let mut state = self.lock();
        state.objects_mut(self.client).any(|object| match object {
            Object::Memory(MemoryEntry {
                origin: Origin::Own { exports },
                ..
            }) => exports.iter().any(|export| export.token == *token),
            _ => false,
        })
    }
}

/// Refuses an export or import without any right.
fn useful(access: Access) -> Result<Access, Refusal> {
    match access {
        Access::None => Err(Refusal::new(Status::BadAccess)),
        Access::Read | Access::ReadWrite => Ok(access),
    }
}
