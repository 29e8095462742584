//! Export, import, revocation.

use std::collections::BTreeSet;
use std::sync::Weak;

use causeway_protocol::Access;
use causeway_protocol::message::{AllocateReply, Empty, Export, Import, Status, Token};
use causeway_protocol::registers::features;

use super::{access, nothing};
use crate::object::{Material, MemoryEntry, Object, Origin};
use crate::quota::Resource;
use crate::refusal::Refusal;
use crate::session::Inner;
use crate::share::{Importer, Offer};

impl Inner {
    /// Only memory that the session allocated can be exported: an import is another's to give, and guest
    /// RAM holds more than the guest can mean to share.
    pub(super) fn export(&self, request: Export) -> Result<Token, Refusal> {
        if self.backend.attributes().features & features::SHARING == 0 {
            return Err(Refusal::new(Status::Unsupported));
        }
        let access = useful(access(request.access)?)?;
        let mut state = self.lock();
        let entry = state.get_mut::<MemoryEntry>(request.allocation)?;
        let memory = entry.live()?.clone();
        let Origin::Own { exports } = &mut entry.origin else {
            return Err(Refusal::new(Status::AccessDenied));
        };
        if entry.material == Material::GuestRam {
            return Err(Refusal::new(Status::BadMemory));
        }
        let charge = self.account.charge(Resource::Objects, 1)?;
        let offer = Offer {
            memory,
            material: entry.material,
            bytes: entry.bytes,
            access,
        };
        let token = self.exports.publish(self.id, offer, charge)?;
        exports.push(token);
        Ok(Token { token })
    }

    pub(super) fn import(&self, request: Import) -> Result<AllocateReply, Refusal> {
        let access = useful(access(request.access)?)?;
        let mut state = self.lock_within(&self.life())?;
        let offer = self.exports.offer(&request.token, access)?;
        let charge = self.account.charge(Resource::Allocations, 1)?;
        let bytes = offer.bytes;
        let import = self.exports.import_number();
        let entry = MemoryEntry {
            memory: Some(offer.memory),
            bytes,
            material: offer.material,
            access,
            origin: Origin::Import {
                token: request.token,
                import,
            },
            gpu: BTreeSet::new(),
            cpu: BTreeSet::new(),
            _charge: charge,
        };
        let handle = state.insert(Object::Memory(entry))?;
        let importer = Importer {
            session: Weak::clone(&self.weak),
            handle,
            import,
        };
        // Withdrawn since the look above? Then nobody would ever take the import back.
        if !self.exports.register(&request.token, importer) {
            state.objects.remove(handle);
            return Err(Refusal::new(Status::BadToken));
        }
        Ok(AllocateReply {
            handle,
            access: access.wire(),
            size: bytes,
        })
    }

    /// A token of somebody else's export is as good as none: it must not tell that the export exists.
    pub(super) fn revoke(&self, request: Token) -> Result<Empty, Refusal> {
        if !self.withdraw(&request.token) {
            return Err(Refusal::new(Status::BadToken));
        }
        let mut state = self.lock();
        for object in state.objects.iter_mut() {
            if let Object::Memory(MemoryEntry {
                origin: Origin::Own { exports },
                ..
            }) = object
            {
                exports.retain(|token| *token != request.token);
            }
        }
        nothing()
    }
}

/// An export or import without any right is a mistake.
fn useful(access: Access) -> Result<Access, Refusal> {
    match access {
        Access::None => Err(Refusal::new(Status::BadAccess)),
        Access::Read | Access::ReadWrite => Ok(access),
    }
}
