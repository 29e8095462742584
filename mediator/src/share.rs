//! Exports of all sessions of a mediator.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use causeway_protocol::Access;
use causeway_protocol::message::{Status, TOKEN_BYTES};

use crate::backend::Memory;
use crate::object::{Material, TokenBytes};
use crate::quota::Charge;
use crate::refusal::Refusal;
use crate::session::Inner;

/// The registry. Locked after a session's state, never before; nothing is called under it.
#[derive(Default)]
pub(crate) struct Exports {
    by_token: Mutex<HashMap<TokenBytes, Export>>,
    imports: AtomicU64,
}

struct Export {
    owner: u64,
    offer: Offer,
    importers: Vec<Importer>,
    _charge: Charge,
}

/// What an importer gets.
#[derive(Clone)]
pub(crate) struct Offer {
    pub memory: Arc<dyn Memory>,
    pub material: Material,
    pub bytes: u64,
    /// At most.
    pub access: Access,
}

/// A handle made from an export. The session is weak: `upgrade` fails only once it has closed.
pub(crate) struct Importer {
    pub session: Weak<Inner>,
    pub handle: u32,
    /// Tells it from another import that gets the same handle after a reset.
    pub import: u64,
}

impl Exports {
    /// Publishes an offer under a fresh random token.
    pub fn publish(&self, owner: u64, offer: Offer, charge: Charge) -> Result<TokenBytes, Refusal> {
        let mut token = [0; TOKEN_BYTES];
        getrandom::fill(&mut token).map_err(|e| {
            log::error!("the host gives no random bytes for an export token: {e}");
            Refusal::new(Status::BackEnd)
        })?;
        let export = Export {
            owner,
            offer,
            importers: Vec::new(),
            _charge: charge,
        };
        self.lock().insert(token, export);
        Ok(token)
    }

    /// What `token` offers, if it offers `access`.
    pub fn offer(&self, token: &TokenBytes, access: Access) -> Result<Offer, Refusal> {
        let exports = self.lock();
        let export = exports.get(token).ok_or(Refusal::new(Status::BadToken))?;
        if !export.offer.access.allows(access) {
            return Err(Refusal::new(Status::AccessDenied));
        }
        Ok(export.offer.clone())
    }

    /// A number for an import, that no other ever has.
    pub fn import_number(&self) -> u64 {
        self.imports.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that `importer` holds what `token` offers. False if the export is gone meanwhile.
    #[must_use]
    pub fn register(&self, token: &TokenBytes, importer: Importer) -> bool {
        match self.lock().get_mut(token) {
            Some(export) => {
                export.importers.push(importer);
                true
            }
            None => false,
        }
    }

    /// Forgets an import whose handle was given up.
    pub fn forget(&self, token: &TokenBytes, import: u64) {
        if let Some(export) = self.lock().get_mut(token) {
            export
                .importers
                .retain(|importer| importer.import != import);
        }
    }

    /// Withdraws an export of `owner`. Gives the importers, whom the caller tells with no lock held.
    pub fn withdraw(&self, token: &TokenBytes, owner: u64) -> Option<Vec<Importer>> {
        let mut exports = self.lock();
        if exports.get(token)?.owner != owner {
            return None;
        }
        let export = exports.remove(token)?;
        drop(exports);
        Some(export.importers)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenBytes, Export>> {
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
