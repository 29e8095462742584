//! Memory that this process can access.

use std::fmt::Debug;
use std::ptr::NonNull;

/// Whether CPUs access memory through their caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// CPUs use their caches, as they do for host memory.
    Cached,
    /// CPUs bypass their caches. Each access is a transaction with a device, so a few wide accesses
    /// cost less than many narrow ones.
    Uncached,
}

/// Memory that is mapped in this process, readable and writable, as long as the value lives.
///
/// Guests and devices write it at any time, so no Rust reference to its content may exist.
pub trait MappedMemory: Send + Sync + Debug {
    /// Returns the address of the first byte, which is page-aligned and never changes. Accesses
    /// must stay within [`Self::bytes`], and must be volatile or atomic.
    fn base(&self) -> NonNull<u8>;

    /// Returns the size in bytes.
    fn bytes(&self) -> u64;

    /// Returns whether CPUs access the memory through their caches.
    fn caching(&self) -> Caching;
}
