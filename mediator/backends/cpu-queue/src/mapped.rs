//! Memory that this process can reach.

use std::fmt::Debug;
use std::ptr::NonNull;

/// How CPUs reach memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Through their caches: host memory.
    Cached,
    /// Past their caches, each access by itself on its way to a device: few wide accesses cost less than many narrow ones.
    Uncached,
}

/// Memory that is mapped in this process for as long as this lives, readable and writable.
///
/// Guests and devices write it at any time, so nobody makes a Rust reference to what is in it.
pub trait Mapped: Send + Sync + Debug {
    /// First byte; page-aligned. Stays where it is. Whoever dereferences it stays within [`Self::bytes`], and uses
    /// volatile or atomic accesses.
    fn base(&self) -> NonNull<u8>;

    /// Size in bytes.
    fn bytes(&self) -> u64;

    /// How it is reached.
    fn caching(&self) -> Caching;
}
