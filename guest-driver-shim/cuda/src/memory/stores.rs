//! Where pools that other processes may use have their memory. Each has chunks of its own, because
//! a process that imports memory gets the whole chunk: it gets no memory of other pools.
//!
//! A freed piece is free for the pool once the work that was submitted before has ended, and not
//! before other processes have lost it. Until then they may go on with it, as CUDA allows: the free
//! may wait in its stream for their work.

use std::sync::Arc;

use causeway_protocol::registers::features;
use causeway_shim_linux::shim::{ExportedPiece, Piece};
use parking_lot::Mutex;

use super::ALIGNMENT;
use super::device::DeviceMemory;
use super::host::{HostMemory, HostPiece};
use super::pointer_data::Identity;
use super::pool_kinds::PoolKind;
use crate::driver::Driver;
use crate::error::{Answer, Code};

/// The memory of a pool.
pub(crate) enum Store {
    Device(Box<Mutex<DeviceMemory>>),
    Host(Mutex<HostMemory>),
}

/// All stores: those of pools, and those of former pools, which wait for the next ones.
#[derive(Default)]
pub(crate) struct Stores(Mutex<Vec<Arc<Store>>>);

/// How a pool is shared.
#[derive(Clone)]
pub(super) enum Sharing {
    /// Not at all.
    Private,
    /// Other processes may import it, and allocations from it.
    Exported {
        identity: Identity,
        store: Arc<Store>,
    },
    /// It is one of another process.
    Imported { identity: Identity },
}

/// A piece of a store.
#[derive(Debug)]
enum StoredPiece {
    Device(Piece),
    Host(HostPiece),
}

/// An allocation from a pool that other processes may use.
pub(crate) struct Stored {
    piece: StoredPiece,
    store: Arc<Store>,
    /// Handle of the pool that counts it.
    pub(super) pool: usize,
}

impl Sharing {
    /// Prepares a pool for other processes.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` for managed memory, or if the host does not let processes share memory.
    pub(super) fn export(driver: &Driver, kind: PoolKind) -> Answer<Self> {
        if !driver.has(features::SHARING) {
            return Err(Code::NOT_SUPPORTED);
        }
        let store = driver.memory.stores.take(driver, kind)?;
        let identity = random()?;
        Ok(Self::Exported { identity, store })
    }

    /// Returns the store of a pool from which the program allocates; `None` if it is one of all
    /// pools that are not shared.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the pool is imported.
    pub(super) fn store(&self) -> Answer<Option<&Arc<Store>>> {
        match self {
            Self::Private => Ok(None),
            Self::Exported { store, .. } => Ok(Some(store)),
            Self::Imported { .. } => Err(Code::INVALID_VALUE),
        }
    }
}

fn random() -> Answer<Identity> {
    let mut bytes = Identity::default();
    // SAFETY: writes at most as many bytes as there are.
    let made = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(made) {
        Ok(made) if made == bytes.len() => Ok(bytes),
        _ => Err(Code::OPERATING_SYSTEM),
    }
}

impl Stores {
    /// Returns an empty store for a new pool.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` for managed memory, or what prevents a new store.
    pub(super) fn take(&self, driver: &Driver, kind: PoolKind) -> Answer<Arc<Store>> {
        let mut stores = self.0.lock();
        let is_spare = |store: &&Arc<Store>| store.is_of(kind) && Arc::strong_count(store) == 1;
        if let Some(spare) = stores.iter().find(is_spare) {
            spare.trim(driver);
            return Ok(Arc::clone(spare));
        }
        let (device, space) = (driver.device, driver.space);
        let made = match kind {
            PoolKind::Device => {
                let memory = DeviceMemory::of_shared_pool(space)?;
                Store::Device(Box::new(Mutex::new(memory)))
            }
            PoolKind::Host => {
                let memory = HostMemory::new(device, space, &driver.attributes);
                Store::Host(Mutex::new(memory.undivided()))
            }
            PoolKind::Managed(_) => return Err(Code::NOT_SUPPORTED),
        };
        let made = Arc::new(made);
        stores.push(Arc::clone(&made));
        Ok(made)
    }

    /// Gives what no piece uses back to the device.
    pub(super) fn trim(&self, driver: &Driver) {
        for store in &*self.0.lock() {
            store.trim(driver);
        }
    }

    /// Returns how many bytes of device memory the stores have, and how many of them pieces use.
    pub(super) fn reserved_and_used_bytes(&self) -> (u64, u64) {
        let stores = self.0.lock();
        let of_each = stores.iter().map(|store| match &**store {
            Store::Device(memory) => memory.lock().reserved_and_used_bytes(),
            Store::Host(_) => (0, 0),
        });
        of_each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

impl Store {
    const fn is_of(&self, kind: PoolKind) -> bool {
        matches!(
            (self, kind),
            (Self::Device(_), PoolKind::Device) | (Self::Host(_), PoolKind::Host)
        )
    }

    /// Gives what no piece uses back to the device.
    pub(super) fn trim(&self, driver: &Driver) {
        match self {
            // It has said why it cannot.
            Self::Device(memory) => drop(memory.lock().trim_idle(driver)),
            Self::Host(memory) => memory.lock().trim(driver),
        }
    }

    fn allocate(&self, driver: &Driver, bytes: u64) -> Answer<StoredPiece> {
        match self {
            Self::Device(memory) => {
                let first = memory.lock().allocate(driver, bytes, ALIGNMENT);
                let piece = match first {
                    // What the process keeps for other memory may be enough.
                    Err(Code::OUT_OF_MEMORY) => {
                        driver.memory.device.lock().trim(driver)?;
                        memory.lock().allocate(driver, bytes, ALIGNMENT)
                    }
                    first => first,
                };
                piece.map(StoredPiece::Device)
            }
            Self::Host(memory) => {
                let mut memory = memory.lock();
                memory.collect(driver);
                let piece = memory.allocate(bytes)?;
                match piece.gpu == piece.host {
                    true => Ok(StoredPiece::Host(piece)),
                    false => {
                        memory.free(piece);
                        Err(Code::NOT_SUPPORTED)
                    }
                }
            }
        }
    }
}

impl Stored {
    /// Allocates memory from the store of a pool.
    pub(super) fn new(
        driver: &Driver,
        store: Arc<Store>,
        (pool, bytes): (usize, u64),
    ) -> Answer<Self> {
        let piece = store.allocate(driver, bytes)?;
        Ok(Self { piece, store, pool })
    }

    /// Returns where the GPU reaches it, and where the CPU does.
    pub(super) const fn addresses(&self) -> (u64, Option<u64>) {
        match &self.piece {
            StoredPiece::Device(piece) => (piece.address(), None),
            StoredPiece::Host(piece) => (piece.gpu, Some(piece.host)),
        }
    }

    /// Returns how many bytes it has, which may be more than were asked for.
    pub(super) const fn bytes(&self) -> u64 {
        match &self.piece {
            StoredPiece::Device(piece) => piece.bytes(),
            StoredPiece::Host(piece) => piece.bytes(),
        }
    }

    /// Exports its chunk to other processes, until it is freed.
    pub(super) fn export(&self) -> Answer<ExportedPiece> {
        match (&self.piece, &*self.store) {
            (StoredPiece::Device(piece), Store::Device(memory)) => memory.lock().export(piece),
            (StoredPiece::Host(piece), Store::Host(memory)) => memory.lock().export(piece),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Frees it behind the work that was submitted.
    pub(super) fn give_back(self, driver: &Driver) {
        match (self.piece, &*self.store) {
            (StoredPiece::Device(piece), Store::Device(memory)) => {
                // Without the lock: a ring may be held by who waits for room in it.
                let marks = driver.rings.marks();
                driver.rings.ask(driver, &marks);
                memory.lock().free(driver, piece, Some(marks));
            }
            (StoredPiece::Host(piece), Store::Host(memory)) => memory.lock().retire(driver, piece),
            _ => {}
        }
        // Its pool was destroyed, and this was the last piece: only the list has the store.
        if Arc::strong_count(&self.store) == 2 {
            self.store.trim(driver);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_have_different_identities() {
        assert_ne!(random(), random());
    }
}
