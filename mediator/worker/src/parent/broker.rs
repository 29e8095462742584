//! Exports of all workers, and who imports them.
//!
//! Lock order: the table's lock is a leaf. A revocation removes the export, releases the lock, and
//! then asks one worker after the other.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use causeway_mediator::share::{TokenBytes, fresh_token};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use parking_lot::Mutex;

use crate::wire::{Memory, Publish};

/// Maximum number of imports of one export.
const IMPORTS_MAX: usize = 4096;

/// The exchange between workers.
#[derive(Default)]
pub(super) struct Broker {
    exports: Mutex<HashMap<TokenBytes, Export>>,
    workers: AtomicU64,
}

struct Export {
    owner: u64,
    offer: Offer,
    importers: Vec<Import>,
}

/// What an export offers to importers.
#[derive(Clone)]
pub(super) struct Offer {
    pub bytes: u64,
    pub memory: Memory,
    access: Access,
    pub file: Arc<OwnedFd>,
}

/// A worker, as far as an export needs it.
pub(super) trait Importer: Send + Sync {
    /// Revokes an import. When this returns, the worker's guest cannot reach the memory.
    fn revoke(&self, handle: u32, import: u64);
}

/// An import of a worker. A worker that no longer exists imports nothing.
pub(super) struct Import {
    pub worker: Weak<dyn Importer>,
    /// Number of the worker.
    pub owner: u64,
    pub handle: u32,
    pub import: u64,
}

impl Broker {
    /// Returns a new number for a worker. The broker never returns the same number twice.
    pub fn worker_number(&self) -> u64 {
        self.workers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes the memory behind `file`, which `request` describes, available to the other workers as
    /// an export of worker number `owner`. Returns the token of the export. Fails with
    /// `QuotaObjects` if the worker already has `most` exports: each uses a file descriptor of the
    /// VMM, which must not run out of them.
    pub fn publish(
        &self,
        owner: u64,
        most: u64,
        request: &Publish,
        file: OwnedFd,
    ) -> Result<TokenBytes, Status> {
        let (_, _, access) = request.memory.checked().ok_or(Status::BadMemory)?;
        let token = fresh_token()?;
        let mut exports = self.exports.lock();
        let own = exports.values().filter(|export| export.owner == owner);
        if own.count() as u64 >= most {
            return Err(Status::QuotaObjects);
        }
        let offer = Offer {
            bytes: request.bytes,
            memory: request.memory,
            access,
            file: Arc::new(file),
        };
        let export = Export {
            owner,
            offer,
            importers: Vec::new(),
        };
        exports.insert(token, export);
        Ok(token)
    }

    /// Returns what the export that `token` names offers. Fails with `BadToken` if there is no such
    /// export, and with `AccessDenied` if it does not allow imports with the rights `access`.
    pub fn fetch(&self, token: &TokenBytes, access: Access) -> Result<Offer, Status> {
        let exports = self.exports.lock();
        let export = exports.get(token).ok_or(Status::BadToken)?;
        if !export.offer.access.allows(access) {
            return Err(Status::AccessDenied);
        }
        Ok(export.offer.clone())
    }

    /// Records `import` as an import of the export that `token` names. Returns false if the export
    /// has been withdrawn or already has the maximum number of imports.
    pub fn register(&self, token: &TokenBytes, import: Import) -> bool {
        match self.exports.lock().get_mut(token) {
            Some(export) if export.importers.len() < IMPORTS_MAX => {
                export.importers.push(import);
                true
            }
            _ => false,
        }
    }

    /// Removes the record that worker number `owner` holds import number `import` of the export
    /// that `token` names.
    pub fn forget(&self, token: &TokenBytes, owner: u64, import: u64) {
        if let Some(export) = self.exports.lock().get_mut(token) {
            export
                .importers
                .retain(|known| (known.owner, known.import) != (owner, import));
        }
    }

    /// Ends the export of worker number `owner` that `token` names, and revokes all imports of it.
    /// Returns false if that worker has no export with this token. The caller must hold no lock.
    pub fn withdraw(&self, token: &TokenBytes, owner: u64) -> bool {
        let mut exports = self.exports.lock();
        let own = |export: &Export| export.owner == owner;
        if !exports.get(token).is_some_and(own) {
            return false;
        }
        let export = exports.remove(token);
        drop(exports);
        export.into_iter().for_each(revoke);
        true
    }

    /// Ends all exports of worker number `owner` and revokes their imports. Also removes the
    /// records of the imports that this worker holds. The caller must hold no lock.
    pub fn withdraw_all(&self, owner: u64) {
        let mut exports = self.exports.lock();
        let own = exports.extract_if(|_, export| export.owner == owner);
        let own: Vec<_> = own.map(|(_, export)| export).collect();
        for export in exports.values_mut() {
            export.importers.retain(|import| import.owner != owner);
        }
        drop(exports);
        own.into_iter().for_each(revoke);
    }
}

fn revoke(export: Export) {
    for import in export.importers {
        if let Some(worker) = import.worker.upgrade() {
            worker.revoke(import.handle, import.import);
        }
    }
}
