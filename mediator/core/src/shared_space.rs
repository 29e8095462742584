//! The part of an address space that consumers use without the session's lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::backend::{Kernel, Recording, Space};

/// An address space, as consumers and waiting clients use it.
pub(crate) struct SharedSpace {
    pub backend: Arc<dyn Space>,
    /// Set to true when work in this address space must end soon.
    pub stop: Arc<AtomicBool>,
    /// The kernels that launch packets can name.
    pub functions: HandleMap<dyn Kernel>,
    /// The recordings that replay packets can name.
    pub recordings: HandleMap<dyn Recording>,
}

/// Objects that consumers look up by handle. A leaf lock.
pub(crate) struct HandleMap<T: ?Sized>(RwLock<BTreeMap<u32, Arc<T>>>);

impl<T: ?Sized> HandleMap<T> {
    fn new() -> Self {
        Self(RwLock::default())
    }

    pub fn get(&self, handle: u32) -> Option<Arc<T>> {
        self.0.read().get(&handle).cloned()
    }

    pub fn add(&self, handle: u32, object: Arc<T>) {
        self.0.write().insert(handle, object);
    }

    /// Removes the object of `handle` and returns it. The caller drops it when no lock is held.
    pub fn remove(&self, handle: u32) -> Option<Arc<T>> {
        self.0.write().remove(&handle)
    }
}

impl SharedSpace {
    pub fn new(backend: Arc<dyn Space>, stop: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            backend,
            stop,
            functions: HandleMap::new(),
            recordings: HandleMap::new(),
        })
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
