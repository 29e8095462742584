//! Exports of all workers, handed from one to another.
//!
//! Lock order: the table's lock is a leaf. Revocation takes an export out, lets the lock go, and then asks one worker
//! after the other.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use causeway_mediator::share::{TokenBytes, fresh_token};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use super::worker::Worker;
use crate::wire::{Memory, Publish};

/// Most imports of one export.
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

/// What an importer gets.
#[derive(Clone)]
pub(super) struct Offer {
    pub bytes: u64,
    pub memory: Memory,
    access: Access,
    pub file: Arc<OwnedFd>,
}

/// An import, and who has it. A worker that is gone has nothing any more.
pub(super) struct Import {
    pub worker: Weak<Worker>,
    /// Number of the worker.
    pub owner: u64,
    pub handle: u32,
    pub import: u64,
}

impl Broker {
    /// A number for a worker, that no other of this broker ever has.
    pub fn worker_number(&self) -> u64 {
        self.workers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Publishes memory of worker `owner`, which may have `most` exports: each takes a descriptor of this process, and
    /// when there are none left, all workers fail.
    pub fn publish(
        &self,
        owner: u64,
        most: u32,
        request: &Publish,
        file: OwnedFd,
    ) -> Result<TokenBytes, Status> {
        let (_, _, access) = request.memory.checked().ok_or(Status::BadMemory)?;
        let token = fresh_token()?;
        let mut exports = self.lock();
        let own = exports.values().filter(|export| export.owner == owner);
        if own.count() >= most as usize {
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

    /// What `token` offers, if it offers `access`.
    pub fn fetch(&self, token: &TokenBytes, access: Access) -> Result<Offer, Status> {
        let exports = self.lock();
        let export = exports.get(token).ok_or(Status::BadToken)?;
        if !export.offer.access.allows(access) {
            return Err(Status::AccessDenied);
        }
        Ok(export.offer.clone())
    }

    /// Notes an import. False if the export is gone meanwhile.
    pub fn register(&self, token: &TokenBytes, import: Import) -> bool {
        match self.lock().get_mut(token) {
            Some(export) if export.importers.len() < IMPORTS_MAX => {
                export.importers.push(import);
                true
            }
            _ => false,
        }
    }

    /// Forgets an import of worker `owner`.
    pub fn forget(&self, token: &TokenBytes, owner: u64, import: u64) {
        if let Some(export) = self.lock().get_mut(token) {
            export
                .importers
                .retain(|known| (known.owner, known.import) != (owner, import));
        }
    }

    /// Withdraws an export of worker `owner`, and takes it from all who have imported it. Called with no lock held.
    /// False if that worker has no such export.
    pub fn withdraw(&self, token: &TokenBytes, owner: u64) -> bool {
        let mut exports = self.lock();
        let own = |export: &Export| export.owner == owner;
        if !exports.get(token).is_some_and(own) {
            return false;
        }
        let export = exports.remove(token);
        drop(exports);
        export.into_iter().for_each(take_away);
        true
    }

    /// Withdraws all exports of worker `owner`, and forgets its imports. Called with no lock held.
    pub fn withdraw_all(&self, owner: u64) {
        let mut exports = self.lock();
        let own = exports.extract_if(|_, export| export.owner == owner);
        let own: Vec<_> = own.map(|(_, export)| export).collect();
        for export in exports.values_mut() {
            export.importers.retain(|import| import.owner != owner);
        }
        drop(exports);
        own.into_iter().for_each(take_away);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenBytes, Export>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take_away(export: Export) {
    for import in export.importers {
        if let Some(worker) = import.worker.upgrade() {
            worker.revoke(import.handle, import.import);
        }
    }
}
