//! What a CPU does in place of a GPU's copy engine, for back ends that have none.
//!
//! * [`Mapped`] is memory that this process can reach: [`HostMemory`], or what a back end has of its own.
//! * [`Mappings`] is an address space over such memory, which changes while work runs: each piece of work sees the
//!   [`Table`] that it began with.
//! * [`WorkQueue`] executes copies, fills, fence releases, timestamps and recordings of them; kernels are for whom it is
//!   told ([`Kernels`]).

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("transfers are written for x86-64 Linux");

pub mod clock;
mod mapped;
mod mappings;
mod memory;
mod queue;
mod table;
mod transfer;
mod uncached;

pub use mapped::{Caching, Mapped};
pub use mappings::{Mappings, Part};
pub use memory::{HostHandle, HostMemory};
pub use queue::{Kernels, WorkQueue, WorkRecording};
pub use table::{Entry, Table};
pub use transfer::{load_acquire_u32, store_release_u32};
pub use uncached::fill_uncached;
