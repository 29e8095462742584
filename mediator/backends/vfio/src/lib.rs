//! The VFIO back end: the memory behind a BAR of a PCI device, partitioned among several guests.
//!
//! The device is the simplest that can be mediated: it has memory, and nothing that executes. So
//! device-kind allocations are parts of one BAR, which guests access by their own loads and stores
//! (each placement is a mapping of the device's descriptor, with a memory slot of its own). The CPU
//! does copies, fills, fences and timestamps ([`causeway_cpu_queue`]). Kernels are refused.
//! Host-kind allocations and guest RAM are shared memory of the host.
//!
//! No guest sees what another leaves behind: a thread of the back end fills memory with zeros
//! before another guest gets it, and before the device is given back to the host
//! ([`Pool`](pool::Pool) says when).
//!
//! The device can do no DMA: no memory is mapped for it, its bus mastering is off, and so are its
//! interrupts.
//!
//! # Caching
//!
//! The Linux kernel maps a BAR uncached into processes (vfio-pci: `pgprot_noncached`), so the CPU
//! works for guests by few wide accesses. In guests, the memory type of pages that are not RAM
//! depends on the processor. On Intel, KVM makes them uncached whatever the guest's PAT says (EPT
//! memory type UC with "ignore PAT"), and all observers see stores in order. On AMD, the guest's
//! PAT may choose write-combining, because the host's page tables do not matter in nested paging;
//! then a guest needs a store fence before a fence release, as for any memory of a device.

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
