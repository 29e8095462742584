//! Shared host memory: what guest RAM and allocations are made of.
//!
//! * [`SharedMemory`] is a memory object behind a file descriptor, in 2 MiB pages where the host
//!   lets it.
//! * [`Mapping`] is a range of it in this process. Guests write the same memory at any time, so
//!   code reaches it by volatile copies and atomics only, never by a Rust reference to its content.
//! * [`Backing`] is memory that a guest can see: such an object, or memory of a device
//!   ([`DeviceMemory`]).
//! * [`Window`] is a reserved range of host addresses in which objects are placed and removed. A
//!   KVM memory slot over a window stays while the content changes.
#![allow(unsafe_code)] // This crate maps memory and reaches it through raw pointers.

mod backing;
mod code;
mod debug;
mod mapping;
mod node;
mod object;
mod ranges;
mod window;

pub use backing::{Backing, DeviceMapping, DeviceMemory};
pub use code::{CodeFile, CodeMapping};
pub use mapping::{Mapping, RangeError};
pub use node::MemoryPolicy;
pub use object::{
    MemoryError, PageSize, SharedMemory, check_range, huge_pages_available, large_page_folder,
};
pub use ranges::{RangeAllocator, page_alignment};
pub use window::Window;

/// Size of a small page in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Size of a large page in bytes.
pub const LARGE_PAGE_BYTES: u64 = 2 << 20;
