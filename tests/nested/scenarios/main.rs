//! Causeway on a KVM of the hardware kind: SVM with nested paging, in an emulated machine.
//!
//! The tests share one machine, one at a time by default; those of real devices share another.
//! `docs/nested.md` says how they work and how to add one.

mod bare;
mod beside_qemu;
mod boot_time;
mod clients;
mod console;
mod control;
mod cuda;
mod debian;
mod disks;
mod documented;
#[path = "../../e2e/bare_images.rs"]
#[allow(dead_code)] // Other tests make more of it.
mod image;
mod interrupts;
mod leftovers;
mod linux;
mod lives;
mod machines;
mod mechanisms;
mod network;
mod nodes;
mod patches;
mod phases;
mod programs;
#[path = "../../e2e/parsed_report.rs"]
#[allow(dead_code)] // Other tests ask more of it.
mod report;
mod roots;
mod runtime;
mod shares;
mod vfio;
mod vsock;
mod without_iommu;
mod worker_groups;
mod workloads;
