//! Exports of all workers, and who imports them.
//!
//! Lock order: the table's lock is a leaf. A revocation removes the export and releases the lock. It
//! takes the memory from the guests of all importers, and then asks their workers one by one.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use causeway_mediator::rights::{Party, RightsOf, SeenExport};
use causeway_mediator::share::{TokenBytes, fresh_token};
use causeway_mediator::{self as mediator, GpuSet};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use parking_lot::Mutex;

use super::objects::ObjectKey;
use super::origins::Origins;
use crate::wire::{Memory, Publish};

/// Maximum number of imports of one export.
const IMPORTS_MAX: usize = 4096;
/// Maximum number of imports of one export by one worker, which has to give back each of them.
const IMPORTS_OF_ONE_MAX: usize = 64;

/// The exchange between workers.
#[derive(Default)]
pub(super) struct Broker {
    table: Mutex<Table>,
    workers: AtomicU64,
}

#[derive(Default)]
struct Table {
    exports: HashMap<TokenBytes, Export>,
    origins: Origins,
}

struct Export {
    owner: Party,
    offer: Offer,
    /// The memory object; `None` for memory of a device, whose descriptors say nothing of it.
    object: Option<ObjectKey>,
    importers: Vec<Import>,
}

/// What an export offers to importers.
#[derive(Clone)]
pub(super) struct Offer {
    pub bytes: u64,
    pub memory: Memory,
    access: Access,
    /// The GPUs whose sessions can import the memory.
    gpus: GpuSet,
    /// Number of the owner's GPU, which decides how others reach the memory.
    pub home: u32,
    pub file: Arc<OwnedFd>,
}

/// A worker, as far as an export needs it.
pub(super) trait Importer: Send + Sync {
    /// Takes from the worker's guest what its imports of a memory object no longer allow.
    fn restrict(&self, object: Option<ObjectKey>);

    /// Tells the worker to give an import back. After this call, its guest cannot reach the memory.
    fn revoke(&self, handle: u32, import: u64);
}

/// An import of a worker. A worker that no longer exists imports nothing.
pub(super) struct Import {
    pub worker: Weak<dyn Importer>,
    /// Number of the worker, and the number of its GPU.
    pub party: Party,
    pub handle: u32,
    pub import: u64,
}

impl Export {
    fn seen(&self) -> SeenExport {
        let offer = &self.offer;
        SeenExport {
            owner: self.owner,
            access: offer.access,
            gpus: offer.gpus,
            bytes: offer.bytes,
        }
    }

    /// Returns how many imports of it a worker has.
    fn imports_of(&self, worker: u64) -> usize {
        let own = |import: &&Import| import.party.session == worker;
        self.importers.iter().filter(own).count()
    }
}

/// What a worker may do with memory that another worker has exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    pub access: Access,
    /// Size of the memory object.
    pub bytes: u64,
}

/// The worker has no such export.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unknown;

impl Broker {
    /// Returns a new number for a worker. The broker never returns the same number twice.
    pub fn worker_number(&self) -> u64 {
        self.workers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes the memory behind `file`, which `request` describes, available to the other workers as
    /// an export of worker `owner`. `object` is the memory object and its size; `None` for
    /// memory of a device. Returns the token of the export.
    ///
    /// Fails with `QuotaObjects` if the worker already has `most` exports: each uses a file
    /// descriptor of the VMM, which must not run out of them. Fails with `AccessDenied` if another
    /// worker has exported this memory object.
    pub fn publish(
        &self,
        owner: Party,
        most: u64,
        request: &Publish,
        file: OwnedFd,
        object: Option<(ObjectKey, u64)>,
    ) -> Result<TokenBytes, Status> {
        let (_, _, access) = request.memory.checked().ok_or(Status::BadMemory)?;
        let token = fresh_token()?;
        let mut table = self.table.lock();
        let own = table.exports.values().filter(|it| it.owner == owner);
        if own.count() as u64 >= most {
            return Err(Status::QuotaObjects);
        }
        if object.is_some_and(|object| !table.origins.add(object, owner.session, token)) {
            return Err(Status::AccessDenied);
        }
        let offer = Offer {
            bytes: request.bytes,
            memory: request.memory,
            access,
            gpus: GpuSet::from_bits(request.gpus),
            home: owner.gpu,
            file: Arc::new(file),
        };
        let export = Export {
            owner,
            offer,
            object: object.map(|(object, _)| object),
            importers: Vec::new(),
        };
        table.exports.insert(token, export);
        Ok(token)
    }

    /// Returns what the export that `token` names offers. Fails with `BadToken` if there is no such
    /// export, and with `AccessDenied` if it does not allow imports with the rights `access`, or by
    /// sessions on GPU number `gpu`.
    pub fn fetch(&self, token: &TokenBytes, access: Access, gpu: u32) -> Result<Offer, Status> {
        let table = self.table.lock();
        let Export { offer, .. } = table.exports.get(token).ok_or(Status::BadToken)?;
        if !offer.access.allows(access) || !offer.gpus.contains(gpu) {
            return Err(Status::AccessDenied);
        }
        Ok(offer.clone())
    }

    /// Records `import` as an import of the export that `token` names. Returns the export;
    /// `None` if it has been withdrawn, is not for the worker's GPU, or has as many imports as it
    /// may.
    pub fn register(&self, token: &TokenBytes, import: Import) -> Option<SeenExport> {
        match self.table.lock().exports.get_mut(token) {
            Some(export)
                if export.offer.gpus.contains(import.party.gpu)
                    && export.importers.len() < IMPORTS_MAX
                    && export.imports_of(import.party.session) < IMPORTS_OF_ONE_MAX =>
            {
                export.importers.push(import);
                Some(export.seen())
            }
            _ => None,
        }
    }

    /// Returns what worker number `worker` may do with a memory object of another worker. Returns
    /// `None` if no other worker has exported the object: then it belongs to this worker.
    pub fn rights(&self, object: ObjectKey, worker: u64) -> Option<Rights> {
        let table = self.table.lock();
        let (tokens, bytes) = table.origins.of_another(object, worker)?;
        let exports = tokens.iter().filter_map(|token| table.exports.get(token));
        let imported = exports.filter(|export| export.imports_of(worker) != 0);
        let widest = imported.map(|export| export.offer.access);
        let access = widest
            .max_by_key(|access| access.wire())
            .unwrap_or(Access::None);
        Some(Rights { access, bytes })
    }

    /// Returns the rights to memory that worker number `worker` has given to others, and has of
    /// others.
    pub fn rights_between(&self, worker: u64) -> mediator::Rights {
        let mut rights = RightsOf::new(worker);
        for export in self.table.lock().exports.values() {
            rights.add(
                export.seen(),
                export.importers.iter().map(|import| import.party),
            );
        }
        rights.rights()
    }

    /// Removes the record that worker number `owner` holds import number `import` of the export
    /// that `token` names. Returns the memory object.
    pub fn forget(&self, token: &TokenBytes, owner: u64, import: u64) -> Option<ObjectKey> {
        let mut table = self.table.lock();
        let export = table.exports.get_mut(token)?;
        export
            .importers
            .retain(|known| (known.party.session, known.import) != (owner, import));
        export.object
    }

    /// Ends the export of worker number `owner` that `token` names, and revokes all imports of it.
    /// Returns the memory object, if the export has one. Fails if that worker has no export with
    /// this token. The caller must hold no lock.
    pub fn withdraw(&self, token: &TokenBytes, owner: u64) -> Result<Option<ObjectKey>, Unknown> {
        let mut table = self.table.lock();
        let own = |export: &Export| export.owner.session == owner;
        if !table.exports.get(token).is_some_and(own) {
            return Err(Unknown);
        }
        let export = table.exports.remove(token).ok_or(Unknown)?;
        let object = export.object;
        object.inspect(|object| table.origins.end(*object, token));
        drop(table);
        revoke(export);
        Ok(object)
    }

    /// Ends all exports of worker number `owner` and revokes their imports. Also removes the
    /// records of the imports that this worker holds. The caller must hold no lock.
    pub fn withdraw_all(&self, owner: u64) {
        let mut table = self.table.lock();
        let own = table
            .exports
            .extract_if(|_, export| export.owner.session == owner);
        let own: Vec<_> = own.map(|(_, export)| export).collect();
        for export in table.exports.values_mut() {
            export
                .importers
                .retain(|import| import.party.session != owner);
        }
        drop(table);
        own.into_iter().for_each(revoke);
        // Only now: until then, the importers' guests must not take the memory for their own.
        self.table.lock().origins.end_all(owner);
    }
}

/// Takes the memory from all importers' guests, and then asks one worker after the other.
fn revoke(export: Export) {
    let importers = export.importers.into_iter();
    let alive = importers.filter_map(|import| Some((import.worker.upgrade()?, import)));
    let alive: Vec<_> = alive.collect();
    for (worker, _) in &alive {
        worker.restrict(export.object);
    }
    for (worker, import) in &alive {
        worker.revoke(import.handle, import.import);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_protocol::message::MemoryKind;
    use zerocopy::FromZeros;

    struct Worker;

    impl Importer for Worker {
        fn restrict(&self, _: Option<ObjectKey>) {}
        fn revoke(&self, _: u32, _: u64) {}
    }

    fn import(session: u64, gpu: u32) -> Import {
        let worker: Weak<dyn Importer> = Weak::<Worker>::new();
        Import {
            worker,
            party: Party { session, gpu },
            handle: 1,
            import: 1,
        }
    }

    /// Returns a broker with an export of session 1 for sessions on GPU 0.
    fn with_export() -> (Broker, TokenBytes) {
        let (broker, mut publish) = (Broker::default(), Publish::new_zeroed());
        publish.memory.made_of = MemoryKind::Device as u32;
        publish.memory.kind = MemoryKind::Device as u32;
        publish.memory.access = Access::Read as u32;
        publish.gpus = GpuSet::only(0).bits();
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let owner = Party { session: 1, gpu: 0 };
        let token = broker.publish(owner, 1, &publish, file, None).unwrap();
        (broker, token)
    }

    #[test]
    fn a_worker_has_so_many_imports_of_an_export_and_all_together_have_more() {
        let (broker, token) = with_export();
        let mut count = 0;
        for session in 2.. {
            let own = (0..=IMPORTS_OF_ONE_MAX)
                .take_while(|_| broker.register(&token, import(session, 0)).is_some())
                .count();
            count += own;
            if own < IMPORTS_OF_ONE_MAX {
                break;
            }
            assert_eq!(own, IMPORTS_OF_ONE_MAX);
        }
        assert_eq!(count, IMPORTS_MAX);
    }

    #[test]
    fn sessions_on_other_gpus_and_with_other_tokens_import_nothing() {
        let (broker, token) = with_export();
        assert!(broker.register(&token, import(2, 1)).is_none());
        let other = fresh_token().unwrap();
        assert!(broker.register(&other, import(2, 0)).is_none());
        assert!(broker.register(&token, import(2, 0)).is_some());
    }

    #[test]
    fn a_worker_that_ends_imports_nothing_and_others_keep_their_imports() {
        let (broker, token) = with_export();
        for session in [2, 3] {
            assert!(broker.register(&token, import(session, 0)).is_some());
        }
        broker.withdraw_all(2);
        let held = |worker| broker.rights_between(worker).held.len();
        assert_eq!([held(2), held(3)], [0, 1]);
    }
}
