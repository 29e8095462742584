//! Objects behind the opaque handles of the API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Objects of one kind. A handle is never used again, so that a stale one is found out.
#[derive(Debug)]
pub struct Handles<T>(BTreeMap<usize, Arc<T>>);

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// A handle that no object has had, of whatever kind.
pub fn fresh() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x5ca_0000);
    NEXT.fetch_add(16, Ordering::Relaxed)
}

impl<T> Handles<T> {
    /// Gives an object a handle.
    pub fn insert(&mut self, object: Arc<T>) -> usize {
        let handle = fresh();
        self.put(handle, object);
        handle
    }

    /// Gives an object a handle from [`fresh`].
    pub fn put(&mut self, handle: usize, object: Arc<T>) {
        self.0.insert(handle, object);
    }

    /// The object of a handle.
    pub fn get(&self, handle: usize) -> Option<Arc<T>> {
        self.0.get(&handle).map(Arc::clone)
    }

    /// Ends a handle.
    pub fn remove(&mut self, handle: usize) -> Option<Arc<T>> {
        self.0.remove(&handle)
    }

    /// All objects, oldest first.
    pub fn all(&self) -> impl Iterator<Item = (usize, &Arc<T>)> {
        self.0.iter().map(|(handle, object)| (*handle, object))
    }

    /// Takes out the objects for which `chosen` holds.
    pub fn take(&mut self, chosen: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let taken = self.0.extract_if(.., |_, object| chosen(object));
        taken.map(|(_, object)| object).collect()
    }
}
