//! The VFIO back end: the memory behind a BAR of a PCI device, partitioned among several guests.
//!
//! The device is the simplest that can be mediated: it has memory, and nothing that executes. So
//! device-kind allocations are parts of one BAR, which guests reach by their own loads and stores
//! (each placement is a mapping of the device's descriptor, with a memory slot of its own); copies,
//! fills, fences and timestamps are done by the CPU ([`causeway_cpu_queue`]); kernels are refused.
//! Host-kind allocations and guest RAM are shared memory of the host.
//!
//! What one guest leaves behind, no other sees: memory is filled with zeros by a thread of the back
//! end before another guest gets it, and before the device is given back ([`Pool`](pool::Pool) says
//! when).
//!
//! The device can do no DMA: nothing is mapped for it, its bus mastering is off, and so are its
//! interrupts.
//!
//! # Caching
//!
//! The kernel maps a BAR uncached into processes (vfio-pci: `pgprot_noncached`), so what the CPU
//! does for guests is done by few wide accesses. For guests, KVM makes pages that are not RAM
//! uncached whatever the guest's PAT says on Intel (EPT memory type UC with "ignore PAT"), and lets
//! the guest's PAT choose write-combining on AMD, where the host's page tables have no say in
//! nested paging. A guest need not know: stores are seen by everybody in order on the one, and want
//! a store fence before a fence release on the other, as for any memory of a device.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the VFIO back end is for x86-64 Linux");

mod backend;
mod bar;
mod capability;
mod memory;
mod options;
mod pool;
mod scrubber;
mod space;
mod watcher;

pub use backend::{OpenError, Vfio};
pub use bar::{BarError, choose as choose_bar};
pub use options::Options;
