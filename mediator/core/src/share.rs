//! Exports of memory, and the sessions that have imported them.
//!
//! Sessions export and import through an [`Exchange`]. The exchange of a [`crate::Mediator`] is a
//! table in its process (`Exports`); sessions in worker processes share one that passes
//! descriptors.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status, TOKEN_BYTES};
use parking_lot::Mutex;

use crate::backend::Memory;
use crate::gpus::{GpuSet, Gpus};
use crate::imported::Imported;
pub use crate::imports::Taken;
use crate::rights::{Party, Rights, RightsOf, SeenExport};

/// How long a revocation waits for work under way that uses the memory, before the session with
/// that work loses its device.
pub const REVOCATION_PATIENCE: Duration = Duration::from_millis(250);
/// How long work of a lost session may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A token: the random secret by which an importer names an export.
pub type TokenBytes = [u8; TOKEN_BYTES];

/// What an export offers to the sessions that import it.
#[derive(Clone)]
pub struct Offer {
    /// The memory that is shared. In the offer that [`Exchange::fetch`] returns, this is an object
    /// of the importer's own: it exists as long as the importer or its work holds it, and its place
    /// is as the importer sees it.
    pub memory: Arc<dyn Memory>,
    /// Kind of the memory.
    pub kind: MemoryKind,
    /// The widest access rights with which a session can import the memory.
    pub access: Access,
    /// The GPUs whose sessions can import the memory.
    pub gpus: GpuSet,
    /// Number of the GPU whose session exports it.
    pub home: u32,
}

causeway_memory::debug_fields!(Offer {
    kind,
    access,
    gpus,
    home
});

/// A session that has imported memory. The exchange calls it to take the import away when the
/// export is withdrawn.
pub trait Importing: Send + Sync {
    /// Takes import number `import`, which has the handle `handle`, away from the session. When
    /// this returns, all mappings of the import have ended. The result is what work under way may
    /// still use; `None` if no work can. Locks the session's state.
    fn take(&self, handle: u32, import: u64) -> Option<Taken>;

    /// Makes the session lost, and asks its work to end, because the work has gone on with an import
    /// that was taken from it.
    fn lose(&self, taken: &Taken);
}

/// One import of an export, which the exchange revokes when the export is withdrawn: the session
/// that holds the import, and the import's handle and number there. Does not keep the session
/// alive.
#[derive(Clone)]
pub struct Importer {
    /// The session that holds the import. If it no longer exists, there is nothing to revoke.
    pub session: Weak<dyn Importing>,
    /// That session's number, and the number of its GPU.
    pub party: Party,
    /// Handle of the import in that session.
    pub handle: u32,
    /// Number that tells this import from a later one with the same handle: handles are reused, but
    /// import numbers are unique in the session's process and never reused.
    pub import: u64,
}

causeway_memory::debug_fields!(Importer { handle, import });

/// The place where sessions publish exports and find the exports of other sessions.
///
/// No method may lock a session, because its caller may hold the lock of one. [`Self::withdraw`] is
/// the exception: its callers hold no lock.
pub trait Exchange: Send + Sync {
    /// Makes `offer`, of session number `owner`, available to importers. Returns the new random
    /// token that names the export.
    ///
    /// # Errors
    /// The status for the guest: `BackEnd` if the host cannot provide random bytes, or the failure
    /// of [`Memory::export`] if the memory has to go to other processes.
    fn publish(&self, owner: u64, offer: Offer) -> Result<TokenBytes, Status>;

    /// Returns the offer of the export that `token` names, for an import with the rights `access` by
    /// a session on the own GPU of `gpus`.
    ///
    /// # Errors
    /// `BadToken` if no export has this token, `AccessDenied` if it does not allow `access` or is
    /// not for this GPU, or the failure of [`crate::backend::Backend::import`].
    fn fetch(&self, token: &TokenBytes, access: Access, gpus: &Gpus) -> Result<Offer, Status>;

    /// Records that `importer` has imported the export that `token` names, so that
    /// [`Self::withdraw`] can take the memory away again. Returns false if the export was withdrawn
    /// in the meantime.
    #[must_use]
    fn register(&self, token: &TokenBytes, importer: Importer) -> bool;

    /// Removes the record of import number `import` of the export that `token` names, because the
    /// session has freed the import.
    fn forget(&self, token: &TokenBytes, import: u64);

    /// Ends the export that `token` names, of session number `owner`. When this returns, no
    /// importer has the memory mapped. The caller must hold no lock. Returns false if that session
    /// has no export with this token.
    fn withdraw(&self, token: &TokenBytes, owner: u64) -> bool;

    /// Returns the rights that session number `session` has given and has. An exchange of a worker
    /// process knows none: its VMM does.
    fn rights(&self, session: u64) -> Rights;
}

/// Waits until no work uses what was taken from sessions. Sessions whose work goes on for longer than
/// [`REVOCATION_PATIENCE`] are lost.
fn await_work(taken: &[(Arc<dyn Importing>, Taken)]) {
    let deadline = Instant::now() + REVOCATION_PATIENCE;
    for (session, taken) in taken {
        if !taken.is_let_go_by(deadline) {
            session.lose(taken);
        }
    }
    let deadline = Instant::now() + STOP_PATIENCE;
    if !taken.iter().all(|(_, taken)| taken.is_let_go_by(deadline)) {
        log::error!(
            "work of a lost session does not end, so it keeps memory whose export was revoked"
        );
    }
}

/// Returns a new random token for an export.
///
/// # Errors
/// `BackEnd` if the host cannot provide random bytes.
pub fn fresh_token() -> Result<TokenBytes, Status> {
    let mut token = [0; TOKEN_BYTES];
    getrandom::fill(&mut token).map_err(|e| {
        log::error!(
            "cannot get random bytes from the host's kernel for an export token, so the export is \
             refused: {e}"
        );
        Status::BackEnd
    })?;
    Ok(token)
}

/// Returns a number for an import, different from all others of this process.
pub(crate) fn import_number() -> u64 {
    static IMPORTS: AtomicU64 = AtomicU64::new(0);
    IMPORTS.fetch_add(1, Ordering::Relaxed)
}

/// The exchange that all sessions of one process use. Its lock is taken after that of a session's
/// state, never before, and nothing is called under it.
#[derive(Default)]
pub(crate) struct Exports {
    by_token: Mutex<HashMap<TokenBytes, Export>>,
}

struct Export {
    owner: u64,
    offer: Offer,
    importers: Vec<Importer>,
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

    fn fetch(&self, token: &TokenBytes, access: Access, gpus: &Gpus) -> Result<Offer, Status> {
        let exports = self.by_token.lock();
        let export = exports.get(token).ok_or(Status::BadToken)?;
        let offer = &export.offer;
        if !offer.access.allows(access) || !offer.gpus.contains(gpus.own) {
            return Err(Status::AccessDenied);
        }
        let memory = Imported {
            memory: Arc::clone(&offer.memory),
            place: gpus.place_of(offer.home, offer.kind),
        };
        Ok(Offer {
            memory: Arc::new(memory),
            ..offer.clone()
        })
    }

    fn register(&self, token: &TokenBytes, importer: Importer) -> bool {
        let mut exports = self.by_token.lock();
        let export = exports.get_mut(token);
        export
            .map(|export| export.importers.push(importer))
            .is_some()
    }

    fn forget(&self, token: &TokenBytes, import: u64) {
        if let Some(export) = self.by_token.lock().get_mut(token) {
            export
                .importers
                .retain(|importer| importer.import != import);
        }
    }

    fn withdraw(&self, token: &TokenBytes, owner: u64) -> bool {
        let mut exports = self.by_token.lock();
        if exports
            .get(token)
            .is_none_or(|export| export.owner != owner)
        {
            return false;
        }
        let export = exports.remove(token);
        drop(exports);
        let importers = export.into_iter().flat_map(|export| export.importers);
        let taken = importers.filter_map(|importer| {
            // A session that cannot be upgraded has closed, and its mappings with it.
            let session = importer.session.upgrade()?;
            let taken = session.take(importer.handle, importer.import)?;
            Some((session, taken))
        });
        await_work(&taken.collect::<Vec<_>>());
        true
    }

    fn rights(&self, session: u64) -> Rights {
        let mut rights = RightsOf::new(session);
        for Export {
            owner,
            offer,
            importers,
        } in self.by_token.lock().values()
        {
            let owner = Party {
                session: *owner,
                gpu: offer.home,
            };
            let seen = SeenExport {
                owner,
                access: offer.access,
                gpus: offer.gpus,
                bytes: offer.memory.bytes(),
            };
            rights.add(seen, importers.iter().map(|importer| importer.party));
        }
        rights.rights()
    }
}

#[cfg(test)]
mod tests;
