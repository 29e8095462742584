//! Copies, fills and fences that the CPU executes, for back ends without a copy engine.
//!
//! * [`MappedMemory`] is memory that this process can access: [`HostMemory`], or a back end's own
//!   type.
//! * [`Mappings`] is an address space over such memory. It may change while work runs: each piece
//!   of work sees the [`Table`] that it began with.
//! * [`WorkQueue`] executes copies, fills, fence releases, timestamps and recordings of them. A
//!   back end that has kernels executes them through [`Kernels`], which also says where arrays are.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("transfers are written for x86-64 Linux");

mod array;
pub mod clock;
mod crossing;
mod mapped;
mod mappings;
mod memory;
mod queue;
mod table;
mod transfer;
mod uncached;

pub use mapped::{Caching, MappedMemory};
pub use mappings::{Mappings, Part};
pub use memory::{HostHandle, HostMemory};
pub use queue::{Kernels, WorkQueue, WorkRecording};
pub use table::{Entry, Table};
pub use transfer::{load_acquire_u32, store_release_u32};
pub use uncached::fill_uncached;
