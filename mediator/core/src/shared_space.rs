//! The part of an address space that consumers use without the session's lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::backend::{Array, Kernel, Recording, Space};

/// An address space, as consumers and waiting clients use it.
pub(crate) struct SharedSpace {
    pub backend: Arc<dyn Space>,
    /// Set to true when running work in this address space must end early, because its session or
    /// client is reset.
    pub stop: Arc<AtomicBool>,
    /// The kernels that packets can launch, by kernel handle.
    pub kernels: HandleMap<dyn Kernel>,
    /// The recordings that packets can replay, by handle.
    pub recordings: HandleMap<dyn Recording>,
    /// The arrays that packets can copy and of which textures can be made, by handle.
    pub arrays: HandleMap<dyn Array>,
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

    /// Removes the object with handle `handle` and returns it. The caller must hold no lock when it
    /// drops the object.
    pub fn remove(&self, handle: u32) -> Option<Arc<T>> {
        self.0.write().remove(&handle)
    }
}

impl SharedSpace {
    pub fn new(backend: Arc<dyn Space>, stop: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            backend,
            stop,
            kernels: HandleMap::new(),
            recordings: HandleMap::new(),
            arrays: HandleMap::new(),
        })
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
