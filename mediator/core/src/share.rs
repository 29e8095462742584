//! Exports of memory, and who has imported them.
//!
//! Sessions publish and import through an [`Exchange`]. That of a [`crate::Mediator`] is a table in its process
//! ([`Exports`]); sessions in processes of their own share one that hands descriptors over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status, TOKEN_BYTES};
use parking_lot::Mutex;

use crate::backend::Memory;

/// Unguessable name of an export.
pub type TokenBytes = [u8; TOKEN_BYTES];

/// What an importer gets.
#[derive(Clone)]
pub struct Offer {
    /// The memory.
    pub memory: Arc<dyn Memory>,
    /// What it was allocated as.
    pub kind: MemoryKind,
    /// Size in bytes.
    pub bytes: u64,
    /// Rights, at most.
    pub access: Access,
}

/// A session that holds an import, as revocation sees it.
pub trait Importing: Send + Sync {
    /// Takes import number `import` away from whom has it behind `handle`: when this returns, its mappings are gone.
    /// Does nothing if the handle stands for something else by now. Takes the session's lock.
    fn revoke_import(&self, handle: u32, import: u64);
}

/// A handle made from an export. The session is weak: `upgrade` fails only once it has closed.
#[derive(Clone)]
pub struct Importer {
    /// Who holds it.
    pub session: Weak<dyn Importing>,
    /// Behind which handle.
    pub handle: u32,
    /// [`import_number`], which tells it from another import that gets the same handle after a reset.
    pub import: u64,
}

/// Where sessions leave exports, and find those of others.
///
/// All but [`Self::withdraw`] may be called with a session's lock held, and take none themselves.
pub trait Exchange: Send + Sync {
    /// Publishes an offer of session `owner` under a fresh random token.
    ///
    /// # Errors
    /// The status for the guest.
    fn publish(&self, owner: u64, offer: Offer) -> Result<TokenBytes, Status>;

    /// What `token` offers, if it offers `access`.
    ///
    /// # Errors
    /// `BadToken`, `AccessDenied`, or why the memory cannot be used here.
    fn fetch(&self, token: &TokenBytes, access: Access) -> Result<Offer, Status>;

    /// Notes that `importer` holds what `token` offers. False if the export is gone meanwhile.
    #[must_use]
    fn register(&self, token: &TokenBytes, importer: Importer) -> bool;

    /// Forgets an import whose handle was given up.
    fn forget(&self, token: &TokenBytes, import: u64);

    /// Withdraws an export of session `owner`: when this returns, no importer has it any more. Called with no lock
    /// held. False if that session has no such export.
    fn withdraw(&self, token: &TokenBytes, owner: u64) -> bool;
}

/// A fresh random token.
///
/// # Errors
/// `BackEnd`, if the host gives no random bytes.
pub fn fresh_token() -> Result<TokenBytes, Status> {
    let mut token = [0; TOKEN_BYTES];
    getrandom::fill(&mut token).map_err(|e| {
        log::error!("the host gives no random bytes for an export token: {e}");
        Status::BackEnd
    })?;
    Ok(token)
}

/// A number for an import, that no other of this process ever has.
pub(crate) fn import_number() -> u64 {
    static IMPORTS: AtomicU64 = AtomicU64::new(0);
    IMPORTS.fetch_add(1, Ordering::Relaxed)
}

/// The exchange of sessions in one process. Locked after a session's state, never before; nothing is called under it.
#[derive(Default)]
pub(crate) struct Exports {
    by_token: Mutex<HashMap<TokenBytes, Export>>,
}

struct Export {
    owner: u64,
    offer: Offer,
    importers: Vec<Importer>,
}

impl Exports {
    /// Removes an export of `owner`, with those who have imported it.
    fn take(&self, token: &TokenBytes, owner: u64) -> Option<Vec<Importer>> {
        let mut exports = self.by_token.lock();
        if exports.get(token)?.owner != owner {
            return None;
        }
        let export = exports.remove(token)?;
        drop(exports);
        Some(export.importers)
    }
}

impl Exchange for Exports {
    fn publish(&self, owner: u64, offer: Offer) -> Result<TokenBytes, Status> {
        let token = fresh_token()?;
        let export = Export {
            owner,
            offer,
            importers: Vec::new(),
        };
        self.by_token.lock().insert(token, export);
        Ok(token)
    }

    fn fetch(&self, token: &TokenBytes, access: Access) -> Result<Offer, Status> {
        let exports = self.by_token.lock();
        let export = exports.get(token).ok_or(Status::BadToken)?;
        if !export.offer.access.allows(access) {
            return Err(Status::AccessDenied);
        }
        Ok(export.offer.clone())
    }

    fn register(&self, token: &TokenBytes, importer: Importer) -> bool {
        match self.by_token.lock().get_mut(token) {
            Some(export) => {
                export.importers.push(importer);
                true
            }
            None => false,
        }
    }

    fn forget(&self, token: &TokenBytes, import: u64) {
        if let Some(export) = self.by_token.lock().get_mut(token) {
            export
                .importers
                .retain(|importer| importer.import != import);
        }
    }

    fn withdraw(&self, token: &TokenBytes, owner: u64) -> bool {
        let Some(importers) = self.take(token, owner) else {
            return false;
        };
        for importer in importers {
            // A session that cannot be upgraded has closed, and its mappings with it.
            if let Some(session) = importer.session.upgrade() {
                session.revoke_import(importer.handle, importer.import);
            }
        }
        true
    }
}
